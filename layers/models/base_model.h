// SPDX-License-Identifier: Apache-2.0
// BaseModel: a layer that turns a batch into a loss and metrics. A task trains one.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/graph/graph.h"
#include "core/ops/cross_entropy.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"
#include "layers/summaries.h"

namespace tessera {

struct ModelOutput {
  // f32 scalars. The mean sum / weight is optimised, in training with the auxiliary losses of all
  // layers: then `sum` contains their sum times `weight`. Features::losses replace it.
  Metric loss;
  // log_pplx, accuracy, …: f32 scalars; and what layers have added (layers/summaries.h).
  std::map<std::string, Metric> metrics;
  // The terms of these sums, one element an example or token: f32["batch …"], including "loss".
  // Evaluation derives per-example scores from them; empty: only whole batches are scored.
  std::map<std::string, Metric> terms;
};

// Returns the output for a loss that is a weighted mean of cross-entropies: metrics log_pplx
// (without smoothing and z-loss) and accuracy. `weights` f32, shaped like the losses; invalid: all
// 1.
ModelOutput weighted_output(const CrossEntropy& scores, Tensor weights);

// `model(features)` gives the loss and the metrics.
class BaseModel : public LayerOf<ModelOutput(const Features& features)> {
 public:
  // Returns fprop's output, with the auxiliary losses and metrics of all layers below.
  ModelOutput operator()(const Features& features) const;
  // Returns f32["batch seq vocab"], or other axes that the model scores.
  Tensor logits(const Features& features) const;
  // Returns f32["batch vocab"], while decoding: scores of the token after the one numbered `last`
  // (i32["batch"]) in each row of `ids`, which continue the tokens in the FpropScope's cache. Error
  // if the model cannot decode token by token.
  Tensor next_logits(const Features& features) const;
  // Whether fprop heeds Features::draws_labels: the loss is then the cross-entropy of labels that
  // it draws, whose squared gradient estimates the curvature (Gauss-Newton-Bartlett).
  virtual bool draws_labels() const { return false; }
  // Returns the first token that the decoder reads while decoding; none without an encoder.
  virtual std::optional<int32_t> decoder_start_id() const { return std::nullopt; }

 protected:
  using LayerOf::LayerOf;

 private:
  virtual Tensor fprop_logits(const Features& features) const = 0;
  virtual Tensor fprop_next_logits(const Features& features) const;
};

}  // namespace tessera
