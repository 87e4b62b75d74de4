// SPDX-License-Identifier: Apache-2.0
// A batch as a model sees it: named tensors, the mode and the step. Not host memory (inputs/ has
// that).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/graph/tensor.h"

namespace tessera {

enum class Mode { kTrain, kEval };

struct Features {
  // ids, labels, weights, segment_ids, segment_pos ["batch seq"], … without the "batch/" prefix.
  std::map<std::string, Tensor, std::less<>> tensors;
  Mode mode = Mode::kTrain;
  Tensor step;  // i32 scalar, keys dropout; invalid where nothing is random.

  const Tensor& get(std::string_view name) const;  // Error naming the features there are.
  Tensor find(std::string_view name) const;        // Invalid if the batch has none.
};

}  // namespace tessera
