// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of a batch, at once or in a loop over microbatches. Sums and weights are
// accumulated and divided once, so gradient accumulation gives the mean over the whole batch even
// if microbatches differ in weight.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.h"
#include "layers/models/base_model.h"

namespace tessera {

struct Differentiated {
  Tensor loss;                    // f32 scalar, not partial.
  std::vector<Tensor> gradients;  // One per trained parameter, in order, with its type.
  ModelOutput output;             // For the whole batch, not partial.
};

// `trained` are indices into `parameters`. `num_microbatches` must divide the batch.
Differentiated differentiate(const BaseModel& model, const std::vector<Tensor>& parameters,
                             const std::vector<int32_t>& trained, const Features& features,
                             int64_t num_microbatches);

}  // namespace tessera
