// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of a batch, at once or microbatch by microbatch in a loop. Sums and weights
// are added up before the one division, so accumulation gives the loss of the whole batch however
// its weights fall.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/tensor.h"
#include "layers/models/base_model.h"

namespace tessera {

struct Differentiated {
  Tensor loss;                    // f32 scalar, finished.
  std::vector<Tensor> gradients;  // Of the trained parameters, in order, of their types.
  ModelOutput output;             // Of the whole batch; partial sums are finished.
};

// `trained` are indices into `parameters`. `num_microbatches` must divide the batch.
Differentiated differentiate(const BaseModel& model, const std::vector<Tensor>& parameters,
                             const std::vector<int32_t>& trained, const Features& features,
                             int64_t num_microbatches);

}  // namespace tessera
