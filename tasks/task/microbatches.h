// SPDX-License-Identifier: Apache-2.0
// A batch at once or in a loop over microbatches: its loss and gradients, or its scores. Sums and
// weights are accumulated and divided once, so gradient accumulation gives the mean over the whole
// batch even if microbatches differ in weight.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "layers/models/base_model.h"
#include "tasks/task/output_sums.h"

namespace tessera {

// When there is a loop. A pipeline needs one, also of a single microbatch: its stages run the body.
enum class MicrobatchLoop { kOfSeveral, kAlways };

// `trained` are indices into `parameters`. `num_microbatches` must divide the batch.
Differentiated differentiate(const BaseModel& model, const std::vector<Tensor>& parameters,
                             const std::vector<int32_t>& trained, const Features& features,
                             int64_t num_microbatches,
                             MicrobatchLoop loop = MicrobatchLoop::kOfSeveral);

// Runs the model on a batch.
ModelOutput score(const BaseModel& model, const std::vector<Tensor>& parameters,
                  const Features& features);
// Runs the model in a loop over microbatches. The terms are summed for each
// example, f32["batch"] in the order of the batch; nothing is partial. Error for terms without an
// axis `batch`.
ModelOutput score_in_microbatches(const BaseModel& model, const std::vector<Tensor>& parameters,
                                  const Features& features, int64_t num_microbatches);

// The most microbatches, up to `most`, that the batch can be divided into on the traced mesh. For
// evaluation, whose batch may be smaller than that of training.
int64_t most_microbatches(const Features& features, int64_t most);

// The sum of each example: f32["batch …"] -> f32["batch"], possibly partial. Error, which names the
// metric, for terms without an axis `batch`.
Tensor sum_of_examples(std::string_view metric, const Tensor& terms);

}  // namespace tessera
