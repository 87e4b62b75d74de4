// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/neighbours.h"

namespace tessera {

bool are_neighbours(const Candidate& a, const Candidate& b) {
  if (a.layout.axis_names != b.layout.axis_names || a.layout.devices() != b.layout.devices())
    return false;
  int64_t differing = 0;  // Mesh axes.
  const auto dcn = [](const Layout& layout, size_t i) {
    return layout.dcn.empty() ? 1 : layout.dcn[i];
  };
  for (size_t i = 0; i < a.layout.ici.size(); ++i)
    if (a.layout.ici[i] != b.layout.ici[i] || dcn(a.layout, i) != dcn(b.layout, i)) ++differing;
  const bool same_rules = a.layout.strategy == b.layout.strategy;
  if (same_rules && differing == 0) return true;
  const bool same_work = a.microbatches == b.microbatches && a.remat_policy == b.remat_policy &&
                         a.state == b.state && a.schedule.name == b.schedule.name &&
                         a.schedule.chunks == b.schedule.chunks;
  return same_work && differing == (same_rules ? 2 : 0);
}

}  // namespace tessera
