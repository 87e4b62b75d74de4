// SPDX-License-Identifier: Apache-2.0
#include "layers/experts/routers.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/order.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"
#include "layers/summaries.h"

namespace tessera {

REGISTER_TEMPLATE(BaseRouter, TopKRouter);
REGISTER_TEMPLATE(BaseRouter, ExpertChoiceRouter);

namespace {

constexpr std::string_view kTopK = "top_k", kChoice = "choice", kCapacity = "capacity",
                           kExpertLoad = "expert_load";

// Returns x["batch seq …"] with zeros at padding.
Tensor without_padding(const Tensor& x) {
  const Tensor is_token = FpropScope::current().token_mask(x);
  return is_token.valid() ? mask(x, is_token) : x;
}

// Returns the mean over tokens, without padding, of (log Σ exp(logits))²; it may be a partial sum.
Tensor mean_squared_log_sum(const Tensor& logits, const Tensor& tokens) {
  return reduce_sum(without_padding(square(logsumexp(logits, kExpertsAxis)))) / tokens;
}

// Returns the number of tokens, at least 1: each token makes top_k of the choices that `counts` has
// by expert.
Tensor tokens_of(const Tensor& counts, int64_t top_k) {
  const Tensor choices = reduce_sum(counts, kExpertsAxis);
  return maximum(choices / static_cast<double>(top_k), constant(1.0, DType::kF32));
}

// Counts how often each expert is chosen in each example: i32["batch …"] -> f32["batch experts"].
Tensor counts_of(const Tensor& choices, int64_t num_experts) {
  const Tensor ones = constant(1.0, DType::kF32, choices.type().axes);
  return scatter_add(ones, choices, {std::string(kExpertsAxis), num_experts, {}}, 1);
}

// Reorders ["batch seq top_k"] -> ["batch choice"]: all first choices in the order of tokens, then
// all second ones.
Tensor in_order_of_choice(const Tensor& x) {
  return merge_axes(transpose(x, "batch top_k seq"), kTopK, "seq", kChoice);
}

// Returns the first `capacity` choices of each expert, in order of choice. `counts`: counts_of().
ExpertSlots slots_of(const TokenChoices& choices, const Tensor& counts, int64_t capacity) {
  const Tensor experts = in_order_of_choice(choices.experts);
  const Tensor numbers = cast(counts, DType::kI32);
  // Choices sorted by expert: those of an expert begin after those of all earlier ones.
  const Tensor sorted = argsort(experts, kChoice);
  const Tensor begins = cumulative_sum(numbers, kExpertsAxis, {.exclusive = true});
  const Tensor slot = iota({std::string(kCapacity), capacity, {}});
  const Tensor is_used = less(slot, numbers);
  const Tensor empty = constant(-1.0, DType::kI32);
  const Tensor choice =
      where(transpose(is_used, "batch experts capacity"),
            gather(sorted, transpose(begins + slot, "batch experts capacity"), kChoice), empty);
  const Axis seq{"seq", choices.experts.size("seq"), {}};
  const Axis top_k{std::string(kTopK), choices.experts.size(kTopK), {}};
  const Tensor token_of_choice =
      merge_axes(broadcast(iota(seq), {top_k}, "top_k seq"), kTopK, "seq", kChoice);
  const Tensor tokens = gather(token_of_choice, choice, kChoice);
  return {.tokens = where(less(choice, constant(0.0, DType::kI32)), empty, tokens),
          .weights = gather(in_order_of_choice(choices.weights), choice, kChoice)};
}

}  // namespace

BaseRouter::BaseRouter(const LayerHParams& layer, int64_t model_dims, int64_t num_experts,
                       bool use_bias)
    : LayerOf(layer), num_experts_(num_experts) {
  const Axis experts{std::string(kExpertsAxis), num_experts, {}};
  w_ = weight("w", {{"embed", model_dims, {}}, experts}, layer.init(), {{"embed"}, {experts.name}});
  if (use_bias) logit_bias_ = weight("logit_bias", {experts}, zeros());
}

Tensor BaseRouter::logits(const Tensor& x) const {
  const Tensor wide = as_dtype(x, DType::kF32);
  const Tensor y = einsum(wide, param_like(w_, wide, DType::kF32), over("embed"));
  return logit_bias_.valid() ? y + param_like(logit_bias_, y, DType::kF32) : y;
}

int64_t BaseRouter::capacity(double factor, int64_t seq, int64_t top_k) const {
  const double share =
      factor * static_cast<double>(seq * top_k) / static_cast<double>(num_experts_);
  const auto slots = static_cast<int64_t>(std::ceil(share));
  return std::min(slots, seq);
}

namespace {

void check_groups(const TopKRouter::HParams& p) {
  const int64_t experts = p.num_experts.get();
  if (experts % p.num_groups != 0)
    fail("TopKRouter: num_groups={} does not divide num_experts={}", p.num_groups, experts);
  const int64_t members = experts / p.num_groups;
  if (p.top_groups > p.num_groups || p.group_best > members)
    fail(
        "TopKRouter: top_groups={} of {} groups, and group_best={} of {} experts in each; expected "
        "at most as many as there are",
        p.top_groups, p.num_groups, p.group_best, members);
  if (p.num_groups > 1 && p.top_k > p.top_groups * members)
    fail("TopKRouter: top_k={} exceeds the {} experts of top_groups={}", p.top_k,
         p.top_groups * members, p.top_groups);
}

}  // namespace

TopKRouter::TopKRouter(const HParams& p)
    : BaseRouter(p.layer, p.model_dims.get(), p.num_experts.get(), p.use_bias), p_(p) {
  if (p.top_k > p.num_experts.get())
    fail("TopKRouter: top_k is {}, expected 1 to num_experts={}", p.top_k, p.num_experts.get());
  check_groups(p);
  if (p.bias_rate > 0.0)
    bias_ = balancing_weight("bias", {std::string(kExpertsAxis), p.num_experts.get(), {}},
                             kExpertLoad, p.bias_rate);
}

Tensor TopKRouter::with_jitter(const Tensor& x) const {
  const FpropScope& call = FpropScope::current();
  if (p_.jitter == 0.0 || call.mode() == Mode::kEval) return x;
  if (!call.step().valid())
    fail("jitter derives its noise from the step, but Features::step is not set");
  const Tensor noise = random_uniform(x.type().axes, call.step());
  return x * as_dtype((noise * 2.0 - 1.0) * p_.jitter + 1.0, x.dtype());
}

// Experts of groups that a token does not choose have the lowest score.
Tensor TopKRouter::within_groups(const Tensor& preferred) const {
  if (p_.num_groups == 1) return preferred;
  const Axis groups{"groups", p_.num_groups, {}};
  const Tensor grouped =
      split_axis(preferred, kExpertsAxis, groups, {"member", num_experts() / p_.num_groups, {}});
  const Tensor best = top_k(grouped, "member", {"best", p_.group_best, {}}).values;
  const Tensor chosen =
      top_k(reduce_sum(best, "best"), "groups", {"chosen", p_.top_groups, {}}).indices;
  const Tensor is_chosen = reduce_max(one_hot(chosen, groups, DType::kF32), "chosen");
  const Tensor open = less(constant(0.5, DType::kF32), is_chosen);
  return merge_axes(where(open, grouped, constant(-1e30, DType::kF32)), "groups", "member",
                    kExpertsAxis);
}

Routing TopKRouter::fprop(Tensor x) const {
  const Tensor scored = logits(with_jitter(x));
  const bool is_softmax = p_.scores == RouterScores::kSoftmax;
  const Tensor scores = is_softmax ? softmax(scored, kExpertsAxis) : sigmoid(scored);
  // Other scores than those of the weights decide the choice.
  const bool prefers = bias_.valid() || p_.num_groups > 1;
  Tensor preferred = prefers ? stop_gradient(scores) : scores;
  if (bias_.valid()) preferred = preferred + param_like(bias_, scores, DType::kF32);
  const TopK best =
      top_k(within_groups(preferred), kExpertsAxis, {std::string(kTopK), p_.top_k, {}});
  TokenChoices choices{best.indices, best.values};
  if (prefers) choices.weights = pick(scores, best.indices, kExpertsAxis);
  if (p_.normalize_weights) choices.weights = choices.weights / reduce_sum(choices.weights, kTopK);
  if (p_.weight_scale != 1.0) choices.weights = choices.weights * p_.weight_scale;
  // Padding chooses an expert that does not exist.
  if (const Tensor is_token = FpropScope::current().token_mask(x))
    choices.experts =
        where(is_token, choices.experts, constant(static_cast<double>(num_experts()), DType::kI32));
  const Tensor shares = is_softmax ? scores : scores / reduce_sum(scores, kExpertsAxis);
  // In decoding a token alone cannot exceed a capacity, and tokens of a step are few: no slots.
  const bool has_slots = p_.capacity_factor.has() && !FpropScope::decodes();
  if (has_slots)  // They are counted over whole examples.
    choices = {whole_along(choices.experts, "seq"), whole_along(choices.weights, "seq")};
  const Tensor counts = counts_of(choices.experts, num_experts());
  add_summaries(scored, shares, counts, choices.experts);
  if (!has_slots) return choices;
  const int64_t slots = capacity(p_.capacity_factor.get(), x.size("seq"), p_.top_k);
  const Tensor excess = relu(counts - constant(static_cast<double>(slots), DType::kF32));
  add_metric("dropped_tokens", {reduce_sum(excess), reduce_sum(counts)});
  return slots_of(choices, counts, slots);
}

// `counts`: counts_of(experts).
void TopKRouter::add_summaries(const Tensor& logits, const Tensor& shares, const Tensor& counts,
                               const Tensor& experts) const {
  if (!collects_summaries()) return;
  const auto size = static_cast<double>(num_experts()), top_k = static_cast<double>(p_.top_k);
  const Tensor all_counts = reduce_sum(counts, "batch");
  const Tensor choices = reduce_sum(all_counts);
  add_metric(kExpertLoad, {all_counts, choices / size});
  const Tensor log_shares = log(maximum(shares, constant(1e-30, DType::kF32)));
  const Tensor entropy = -reduce_sum(without_padding(shares * log_shares));
  add_metric("router_entropy", {entropy, choices / top_k});
  const Tensor all_chosen = reduced(all_counts);
  if (p_.z_loss_weight != 0.0)
    add_loss("router_z_loss",
             mean_squared_log_sum(logits, tokens_of(all_chosen, p_.top_k)) * p_.z_loss_weight);
  if (p_.load_balance_weight == 0.0) return;
  // Products of two sums over tokens, of which one may be partial.
  const bool by_example = p_.load_balance_scope == BalanceScope::kExample;
  const bool first = p_.load_balance_first_choices;
  const int64_t each = first ? 1 : p_.top_k;  // Choices of a token that count.
  const Tensor counted = first ? counts_of(slice(experts, kTopK, 0, 1), num_experts()) : counts;
  const Tensor chosen = reduced(by_example ? counted : reduce_sum(counted, "batch"));
  const Tensor summed = reduce_sum(without_padding(shares), by_example ? "seq" : "batch seq");
  Tensor overlap = reduce_sum(chosen * summed, kExpertsAxis) / square(tokens_of(chosen, each));
  if (by_example) {  // The mean over the examples that are not all padding.
    const Tensor one = constant(1.0, DType::kF32);
    const Tensor examples = reduce_sum(minimum(reduce_sum(chosen, kExpertsAxis), one));
    overlap = reduce_sum(overlap) / maximum(reduced(examples), one);
  }
  add_loss("load_balance", overlap * (p_.load_balance_weight * size / static_cast<double>(each)));
}

ExpertChoiceRouter::ExpertChoiceRouter(const HParams& p)
    : BaseRouter(p.layer, p.model_dims.get(), p.num_experts.get()), p_(p) {}

Routing ExpertChoiceRouter::fprop(Tensor x) const {
  if (FpropScope::decodes())
    fail(
        "ExpertChoiceRouter cannot decode token by token: which tokens an expert chooses depends "
        "on later tokens; use TopKRouter");
  const Tensor scored = logits(x);
  const Tensor scores = whole_along(softmax(scored, kExpertsAxis), "seq");
  const Tensor by_expert = transpose(scores, "batch experts seq");
  const int64_t slots = capacity(p_.capacity_factor, x.size("seq"), 1);
  const Axis capacity{std::string(kCapacity), slots, {}};
  const TopK best = top_k(without_padding(by_expert), "seq", capacity);
  const Tensor one = constant(1.0, DType::kF32);
  const Tensor tokens =
      without_padding(broadcast(one, {scores.type().axis("batch"), scores.type().axis("seq")}));
  if (p_.z_loss_weight != 0.0)
    add_loss(
        "router_z_loss",
        mean_squared_log_sum(scored, maximum(reduced(reduce_sum(tokens)), one)) * p_.z_loss_weight);
  // The slots that an example without its padding would have.
  const double share = std::min(p_.capacity_factor / static_cast<double>(num_experts()), 1.0);
  const Tensor is_used = less(cast(iota(capacity), DType::kF32), reduce_sum(tokens, "seq") * share);
  return ExpertSlots{.tokens = where(is_used, best.indices, constant(-1.0, DType::kI32)),
                     .weights = mask(best.values, is_used)};
}

}  // namespace tessera
