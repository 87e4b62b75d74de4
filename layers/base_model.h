// SPDX-License-Identifier: Apache-2.0
// BaseModel: a layer whose fprop turns a batch into a loss and metrics. What a task trains.
#pragma once

#include <map>
#include <string>

#include "core/graph/tensor.h"
#include "core/ops/cross_entropy.h"
#include "layers/features.h"
#include "layers/layer.h"

namespace tessera {

// A weighted mean, not yet divided: f32 scalars, both possibly partial sums. Sums and weights add
// up over microbatches, hosts and eval batches; the quotient is taken last.
struct Metric {
  Tensor sum;
  Tensor weight;
};

struct ModelOutput {
  Metric loss;                            // What is optimised: sum / weight.
  std::map<std::string, Metric> metrics;  // log_pplx, accuracy, …
  // What those sums and weights add up, an element each: f32["batch …"], "loss" among them. From it
  // evaluation has the score of every example; a model that leaves it empty is scored as a whole.
  std::map<std::string, Metric> terms;
};

// The output of a model whose loss is a weighted mean of cross-entropies: metrics log_pplx (without
// smoothing and z-loss) and accuracy. `weights` f32, like the losses; invalid: 1 everywhere.
ModelOutput weighted_output(const CrossEntropy& scores, Tensor weights);

class BaseModel : public Layer {
 public:
  virtual ModelOutput fprop(const Features& features) const = 0;
  // f32["batch seq vocab"] (or what the model scores), for sampling.
  virtual Tensor logits(const Features& features) const = 0;
  // f32["batch vocab"]: scores of what follows the token number `last` (i32["batch"]) of each row's
  // `ids`, which follow those in the FpropScope's cache. Unless overridden, an Error: the model
  // cannot decode token by token.
  virtual Tensor next_logits(const Features& features) const;

 protected:
  using Layer::Layer;
};

}  // namespace tessera
