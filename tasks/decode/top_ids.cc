// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/top_ids.h"

#include <algorithm>

namespace tessera {

// Candidates gather until there are several times k, then all but the best k go; what is no better
// than the worst of those is passed over from then on. So nearly all ids cost one comparison.
void top_ids(std::span<const float> scores, int64_t k, std::vector<int32_t>* ids) {
  const auto before = [scores](int32_t a, int32_t b) { return scores_before(scores, a, b); };
  const auto most = static_cast<size_t>(k);
  const auto shrink = [&] {
    if (ids->size() <= most) return;
    std::nth_element(ids->begin(), ids->begin() + k - 1, ids->end(), before);
    ids->resize(most);
  };
  ids->clear();
  float threshold = kNeverScore;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(scores[i] > threshold)) continue;
    ids->push_back(static_cast<int32_t>(i));
    if (ids->size() < 4 * most) continue;
    shrink();
    threshold = scores[static_cast<size_t>(ids->back())];
  }
  shrink();
  std::sort(ids->begin(), ids->end(), before);
}

}  // namespace tessera
