// SPDX-License-Identifier: Apache-2.0
// A batch at once or in a loop over microbatches: its loss and gradients, or its scores. Sums and
// weights are accumulated and divided once, so gradient accumulation gives the mean over the whole
// batch even if microbatches differ in weight.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "layers/models/base_model.h"

namespace tessera {

// What a loop over parts of a batch adds up: gradients, then the sums and weights of a model's
// output in one flat list; and the mean that they give.

inline constexpr std::string_view kBatchAxis = "batch";
// The axis of the loop over microbatches.
inline constexpr std::string_view kMicrobatchAxis = "microbatch";

struct Differentiated {
  Tensor loss;                    // f32 scalar, not partial.
  std::vector<Tensor> gradients;  // One per trained parameter, in order, with its type.
  ModelOutput output;             // For the whole batch, not partial.
};

// The output, replicated.
ModelOutput finished(const ModelOutput& output);

// The output of microbatch `index` of `count`, to be added up: what layers inspect gets an axis for
// the microbatches, with zeros for the others.
ModelOutput in_sum(ModelOutput output, const Tensor& index, int64_t count);

std::vector<Tensor> select(const std::vector<Tensor>& tensors, const std::vector<int32_t>& which);

// Pack a model's output into a flat list of sums and weights for the loop carry, and unpack it.
std::vector<Tensor> flatten(const ModelOutput& output);
ModelOutput unflatten(const std::vector<std::string>& names, const std::vector<Tensor>& flat);

// The names of a model's metrics and terms, and the zeros that its output is added to.
struct EmptyOutput {
  std::vector<std::string> names;
  std::vector<std::string> terms;
  std::vector<Tensor> zeros;  // In the order of flatten().
};

// Features by their types: those of one part of a batch.
struct FeatureTypes {
  std::map<std::string, Type> types;
  Mode mode = Mode::kTrain;
  bool has_step = false;
  bool draws_labels = false;
};
FeatureTypes types_of(const Features& features);

// The types come from a trace that is discarded.
EmptyOutput empty_output(const BaseModel& model, const FeatureTypes& features,
                         int64_t microbatches);

// The mean from the last carries of the loop: the sums of gradients of `targets`, and an output
// with metrics of these names.
Differentiated mean_of(std::vector<Tensor> sums, const std::vector<Tensor>& targets,
                       const std::vector<std::string>& names);

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
