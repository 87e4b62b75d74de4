// SPDX-License-Identifier: Apache-2.0
// MultiTokenPrediction: heads that predict further tokens in training (Gloeckle et al., 2024, arXiv
// 2404.19737), one after another as in DeepSeek-V3 (2024, arXiv 2412.19437, section 2.2).
#pragma once

#include <functional>
#include <vector>

#include "core/hparams/template.h"
#include "core/ops/cross_entropy.h"
#include "layers/layer.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"

namespace tessera {

// What the model predicts, and the parts that it shares with the heads.
struct PredictedTokens {
  Tensor labels;       // i32["batch seq"]: the token after each one.
  Tensor weights;      // f32["batch seq"]: those of the labels; invalid: all 1.
  Tensor segment_ids;  // i32["batch seq"], 0: padding; invalid: each row is one segment.
  std::function<Tensor(Tensor ids)> embed;  // ids -> ["batch seq embed"].
  std::function<CrossEntropy(Tensor x, Tensor labels)> loss;
};

// Module k = 1 … num_tokens (equations 21 to 25):
//
//   h'_k = norm(h_{k-1})·hidden + norm(embed(t_{i+k}))·token,   h_k = block(h'_k)
//
// predicts t_{i+k+1} from norm(h_k). As the equations say, h_0 is what the model's last block
// returns, without the final norm. (Megatron-LM's modules read h_{k-1} after its norm.) The result
// is the weighted loss, loss_weight / num_tokens · Σ_k L_k. L_k is divided by the weight of all
// labels, as in the paper, so it is a mean over tokens in microbatches, too. A token that is not in
// the segment of t_i, or after the row, is not predicted. Metric mtp_log_pplx_<k>: nats per token
// that module k predicts.
class MultiTokenPrediction final : public LayerOf<Tensor(Tensor x, const SequenceInfo& sequence,
                                                         const PredictedTokens& tokens)> {
 public:
  struct HParams {
    using Instance = MultiTokenPrediction;
    Required<int64_t> model_dims;
    int64_t num_tokens = 1;  // Predicted after the next one, each by a module.
    double loss_weight = 0.3;
    Template<SequenceLayer> block_tpl = TransformerBlock::HParams{};
    Template<UnaryLayer> norm_tpl = RmsNorm::HParams{};
    LayerHParams layer;
    FIELDS(About(model_dims, kSize),
           About(num_tokens, "each has its own nodes", {.min = 1, .max = 64}),
           About(loss_weight, kNotNegative), block_tpl, norm_tpl, layer)
  };
  explicit MultiTokenPrediction(const HParams& p);

 private:
  struct Module {
    ChildLayer<UnaryLayer> hidden_norm, token_norm, final_norm;
    Weight hidden, token;
    ChildLayer<SequenceLayer> block;
  };
  Tensor fprop(Tensor x, const SequenceInfo& sequence,
               const PredictedTokens& tokens) const override;
  Tensor hidden_state(const Module& module, Tensor x, Tensor embedded,
                      const SequenceInfo& sequence) const;

  double loss_weight_;
  std::vector<Module> modules_;
};

extern template class HolderOf<MultiTokenPrediction, MultiTokenPrediction::HParams>;

}  // namespace tessera
