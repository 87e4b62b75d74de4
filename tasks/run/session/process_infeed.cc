// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/process_infeed.h"

#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/type.h"

namespace tessera {

Infeed process_infeed(const StepSizes& sizes, const Mesh& mesh, const AxisRules& rules,
                      int64_t process, int64_t processes, int64_t devices) {
  Infeed infeed{.infeed_host_index = process, .num_infeed_hosts = processes};
  for (const StepSize& size : sizes.phases()) {
    const ErrorContext where(size.where);
    const Type type = apply_rules(rules.activations, mesh,
                                  make_type(DType::kI32, {{"batch", size.input_rows, {}}}));
    if (const auto problem = type_problem(type, mesh)) fail("global_batch_size: {}", *problem);
    std::vector<RowRange> rows;
    if (devices > 0) rows = rows_of(type, mesh, process * devices, devices);
    if (infeed.rows.empty()) infeed.rows = rows;
    if (sizes.change_rows())
      infeed.sizes.push_back({size.start_step, size.input_rows, std::move(rows)});
  }
  return infeed;
}

}  // namespace tessera
