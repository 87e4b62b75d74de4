// SPDX-License-Identifier: Apache-2.0
// Routers of a mixture of experts: which experts process which tokens, and with which weights.
// Scores are computed in f32. A router adds its losses and metrics to those of the model
// (layers/summaries.h). Its choices do not depend on the mesh: of equal scores the one with the
// lower index is chosen, and capacity is counted in the order of tokens. Padding
// (FpropScope::token_mask) is processed by no expert: it takes no capacity and is in no loss or
// metric.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "core/graph/graph.h"
#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

// The axis of the experts, for rules such as "experts -> data".
inline constexpr std::string_view kExpertsAxis = "experts";

// Every token is processed by all the experts that it chose ("dropless").
struct TokenChoices {
  Tensor experts;  // i32["batch seq top_k"]; num_experts: none (padding).
  Tensor weights;  // f32["batch seq top_k"]
};

// Every expert has `capacity` slots in each example, each for one token or empty.
struct ExpertSlots {
  Tensor tokens;   // i32["batch experts capacity"]: positions in seq; -1: an empty slot.
  Tensor weights;  // f32["batch experts capacity"]; 0 for an empty slot.
};

using Routing = std::variant<TokenChoices, ExpertSlots>;

// x["batch seq embed"] -> which experts process its tokens.
class BaseRouter : public LayerOf<Routing(Tensor x)> {
 public:
  int64_t num_experts() const { return num_experts_; }

 protected:
  BaseRouter(const LayerHParams& layer, int64_t model_dims, int64_t num_experts,
             bool use_bias = false);
  // Computes x·w, plus a bias, in f32, ["batch seq experts"]; whole along experts, otherwise split
  // as x.
  Tensor logits(const Tensor& x) const;
  // Returns the slots of an expert in an example of `seq` tokens:
  // ceil(factor·seq·top_k/num_experts), but not more than `seq`.
  int64_t capacity(double factor, int64_t seq, int64_t top_k) const;

 private:
  int64_t num_experts_;
  Weight w_, logit_bias_;
};

enum class RouterScores {
  kSoftmax,  // Over the experts.
  kSigmoid,  // For each expert by itself (DeepSeek-V3, 2024).
};
// The set of tokens over which the shares of the load-balance loss are means.
enum class BalanceScope {
  kBatch,    // All tokens of the batch, or microbatch (Switch, Mixtral).
  kExample,  // The tokens of each example; the loss is the mean over examples (GShard's groups).
};
// Each token chooses the `top_k` experts with the highest scores (Shazeer et al., 2017; GShard,
// Lepikhin et al., 2020; Switch, Fedus et al., 2021).
//
// Losses: load_balance = weight·E·Σ_e f_e·P_e with f_e the fraction of choices of expert e, or of
// first choices, and P_e its mean score (of scores that are normalised to sum 1), which is `weight`
// if all are equal; router_z_loss = weight·mean((log Σ exp(logits))²) (ST-MoE, Zoph et al., 2022).
// Metrics: expert_load, the number of choices of each expert relative to an equal share;
// router_entropy, of the normalised scores, in nats; dropped_tokens, the fraction of choices beyond
// the capacity.
class TopKRouter final : public BaseRouter {
 public:
  struct HParams {
    using Instance = TopKRouter;
    Required<int64_t> model_dims;
    Required<int64_t> num_experts;
    int64_t top_k = 2;
    bool use_bias = false;  // Adds a learned bias to the logits (gpt-oss).
    RouterScores scores = RouterScores::kSoftmax;
    bool normalize_weights = true;  // Divide the chosen scores by their sum (Mixtral, DeepSeek-V3).
    double weight_scale = 1.0;      // Multiplies the weights (DeepSeek: routed_scaling_factor).
    // Experts form groups of equal size; a token chooses only among those of its `top_groups` best.
    // The score of a group is the sum of its `group_best` best (DeepSeek-V2: 1; DeepSeek-V3: 2).
    int64_t num_groups = 1;
    int64_t top_groups = 1;
    int64_t group_best = 1;
    // An expert processes at most ceil(factor·seq·top_k/num_experts) tokens of an example: first
    // choices come before second ones, and then the order of tokens decides; a choice beyond that
    // is dropped. Unset: dropless.
    Field<double> capacity_factor;
    double load_balance_weight = 0.01;
    BalanceScope load_balance_scope = BalanceScope::kBatch;
    bool load_balance_first_choices = false;  // Count no second choices (GShard, algorithm 1).
    double z_loss_weight = 0.0;
    // Balances experts without a loss (Wang et al., 2024; DeepSeek-V3): a bias for each expert,
    // which is added to its score for the choice only, moves by this much in each step, up for an
    // expert with less than its share of choices and down for one with more. 0: no bias.
    double bias_rate = 0.0;
    double jitter = 0.0;  // In training the router's input is multiplied by U(1-jitter, 1+jitter).
    LayerHParams layer;
    FIELDS(About(model_dims, kSize), About(num_experts, kSize), About(top_k, kSize), use_bias,
           scores, normalize_weights, weight_scale, About(num_groups, kSize),
           About(top_groups, kSize), About(group_best, kSize),
           About(capacity_factor, "unset: every token is processed (dropless)", kPositive),
           About(load_balance_weight, kNotNegative), load_balance_scope, load_balance_first_choices,
           About(z_loss_weight, kNotNegative), About(bias_rate, kNotNegative), About(jitter, kRate),
           layer)
  };
  explicit TopKRouter(const HParams& p);

 private:
  Routing fprop(Tensor x) const override;
  Tensor with_jitter(const Tensor& x) const;
  Tensor within_groups(const Tensor& preferred) const;
  void add_summaries(const Tensor& logits, const Tensor& shares, const Tensor& counts,
                     const Tensor& experts) const;

  HParams p_;
  Weight bias_;
};

// Each expert chooses the tokens of an example with the highest scores, as many as it has slots, so
// that the load is equal by construction (Zhou et al., 2022). A token's choice depends on later
// tokens: it is not for models that generate text token by token, and an Error in decoding.
class ExpertChoiceRouter final : public BaseRouter {
 public:
  struct HParams {
    using Instance = ExpertChoiceRouter;
    Required<int64_t> model_dims;
    Required<int64_t> num_experts;
    double capacity_factor = 2.0;  // The mean number of experts of a token.
    double z_loss_weight = 0.0;
    LayerHParams layer;
    FIELDS(About(model_dims, kSize), About(num_experts, kSize), About(capacity_factor, kPositive),
           About(z_loss_weight, kNotNegative), layer)
  };
  explicit ExpertChoiceRouter(const HParams& p);

 private:
  Routing fprop(Tensor x) const override;

  HParams p_;
};

extern template class HolderOf<BaseRouter, TopKRouter::HParams>;
extern template class HolderOf<BaseRouter, ExpertChoiceRouter::HParams>;

}  // namespace tessera
