// SPDX-License-Identifier: Apache-2.0
// MoeFeedForward and its routers against a plain implementation, token by token; their gradients
// against finite differences; and their layouts on meshes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/summaries.h"
#include "tasks/task/config/experiment.h"
#include "tasks/testing/tested_layer.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr size_t kBatch = 2, kSeq = 6, kEmbed = 4, kHidden = 4, kExperts = 4;
const std::string kInput = "f32[\"batch=2 seq=6 embed=4\"]";

// Values without ties, so that finite differences do not change any choice.
Values sample(size_t count, double frequency, double size) {
  Values values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = size * std::sin(frequency * static_cast<double>((i + 1) * (i + 2)));
  return values;
}

struct Numbers {
  Values x = sample(kBatch * kSeq * kEmbed, 0.37, 1.0);
  Values router = sample(kEmbed * kExperts, 0.71, 2.0);
  Values up = sample(kExperts * kEmbed * kHidden, 0.53, 1.0);
  Values gate = sample(kExperts * kEmbed * kHidden, 0.29, 1.0);
  Values down = sample(kExperts * kHidden * kEmbed, 0.43, 1.0);

  ReferenceInputs inputs() const {
    return {{"x", x}, {"router.w", router}, {"up", up}, {"gate", gate}, {"down", down}};
  }
};

MoeFeedForward::HParams layer_of(const Template<BaseRouter>& router) {
  return {.model_dims = kEmbed,
          .hidden_dims = kHidden,
          .num_experts = kExperts,
          .router_tpl = router,
          .activation_tpl = SiLU::HParams{},
          .use_gated_activation = true};
}

// The plain implementation.

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

Values scores_of(const Numbers& n, size_t token, RouterScores kind) {
  Values scores(kExperts, 0.0);
  for (size_t e = 0; e < kExperts; ++e) {
    for (size_t i = 0; i < kEmbed; ++i)
      scores[e] += n.x[token * kEmbed + i] * n.router[i * kExperts + e];
    scores[e] = kind == RouterScores::kSoftmax ? std::exp(scores[e]) : sigmoid_of(scores[e]);
  }
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  if (kind == RouterScores::kSoftmax)
    for (double& score : scores) score /= sum;
  return scores;
}

// Adds weight·expert(token) to the token's result.
void add_expert(const Numbers& n, size_t token, size_t expert, double weight, Values* result) {
  for (size_t h = 0; h < kHidden; ++h) {
    double up = 0.0, gate = 0.0;
    for (size_t i = 0; i < kEmbed; ++i) {
      const double x = n.x[token * kEmbed + i];
      up += x * n.up[(expert * kEmbed + i) * kHidden + h];
      gate += x * n.gate[(expert * kEmbed + i) * kHidden + h];
    }
    const double hidden = gate * sigmoid_of(gate) * up;
    for (size_t o = 0; o < kEmbed; ++o)
      (*result)[token * kEmbed + o] +=
          weight * hidden * n.down[(expert * kHidden + h) * kEmbed + o];
  }
}

// Returns the positions of the `count` greatest values, in descending order; for equal values the
// first positions.
std::vector<size_t> greatest(const Values& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

// capacity 0: dropless.
Values by_token_choice(const Numbers& n, const TopKRouter::HParams& p, size_t capacity) {
  Values result(n.x.size(), 0.0);
  const size_t top_k = static_cast<size_t>(p.top_k);
  for (size_t example = 0; example < kBatch; ++example) {
    std::vector<size_t> used(kExperts, 0);
    for (size_t choice = 0; choice < top_k; ++choice) {
      for (size_t s = 0; s < kSeq; ++s) {
        const size_t token = example * kSeq + s;
        const Values scores = scores_of(n, token, p.scores);
        const std::vector<size_t> chosen = greatest(scores, top_k);
        double sum = 0.0;
        for (const size_t expert : chosen) sum += scores[expert];
        if (capacity > 0 && used[chosen[choice]]++ >= capacity) continue;
        const double weight = scores[chosen[choice]] / (p.normalize_weights ? sum : 1.0);
        add_expert(n, token, chosen[choice], weight * p.weight_scale, &result);
      }
    }
  }
  return result;
}

Values by_expert_choice(const Numbers& n, size_t capacity) {
  Values result(n.x.size(), 0.0);
  for (size_t example = 0; example < kBatch; ++example)
    for (size_t expert = 0; expert < kExperts; ++expert) {
      Values scores;
      for (size_t s = 0; s < kSeq; ++s)
        scores.push_back(scores_of(n, example * kSeq + s, RouterScores::kSoftmax)[expert]);
      for (const size_t s : greatest(scores, capacity))
        add_expert(n, example * kSeq + s, expert, scores[s], &result);
    }
  return result;
}

const LayerSetting kExpertParallel{
    .mesh = {.ici_mesh_shape = {1, 2, 2}},
    .rules = {.weights = "experts -> data, embed -> data, mlp -> mdl",
              .activations = "residual: seq -> mdl, experts -> data, batch -> (replica, data), "
                             "mlp -> mdl"}};
const LayerSetting kOneDevice{.mesh = {.ici_mesh_shape = {1, 1, 1}}};
const LayerSetting kSharded{
    .mesh = {.ici_mesh_shape = {1, 2, 2}},
    .rules = {.weights = "embed -> data, mlp -> mdl",
              .activations = "residual: seq -> mdl, batch -> (replica, data), mlp -> mdl"}};

Values result_of(const MoeFeedForward::HParams& p, LayerSetting setting = {}) {
  setting.values = Numbers().inputs();
  return TestedLayer(p, kInput, setting).result();
}

void check_everywhere(const MoeFeedForward::HParams& p, const Values& expected) {
  for (LayerSetting setting : {LayerSetting(), kSharded, kExpertParallel}) {
    INFO("weights: " << setting.rules.weights);
    require_close(result_of(p, setting), expected, 1e-9);
    setting.values = Numbers().inputs();
    TestedLayer(p, kInput, setting).check_gradients();
  }
}

TEST_CASE("a dropless mixture is the weighted sum of the experts that each token chose") {
  const auto [scores, normalized, top_k] =
      GENERATE(table<RouterScores, bool, int64_t>({{RouterScores::kSoftmax, true, 2},
                                                   {RouterScores::kSoftmax, false, 1},
                                                   {RouterScores::kSigmoid, true, 3},
                                                   {RouterScores::kSigmoid, false, 4}}));
  const TopKRouter::HParams router{
      .top_k = top_k, .scores = scores, .normalize_weights = normalized, .weight_scale = 2.0};
  check_everywhere(layer_of(router), by_token_choice({}, router, 0));
}

TEST_CASE("with a capacity, first choices come first, then the order of tokens decides") {
  const auto [factor, capacity] = GENERATE(
      table<double, size_t>({{0.5, 2}, {0.34, 2}, {1.0, 3}, {1.01, 4}, {0.01, 1}, {9.0, 6}}));
  const TopKRouter::HParams router{.capacity_factor = factor};
  INFO("capacity_factor " << factor);
  check_everywhere(layer_of(router), by_token_choice({}, router, capacity));
}

TEST_CASE("the capacities above differ") {
  const TopKRouter::HParams router;
  REQUIRE(by_token_choice({}, router, 1) != by_token_choice({}, router, 2));
  REQUIRE(by_token_choice({}, router, 3) != by_token_choice({}, router, 4));
  REQUIRE(by_token_choice({}, router, 6) == by_token_choice({}, router, 0));
}

TEST_CASE("experts that choose take the tokens with the highest scores of each example") {
  check_everywhere(layer_of(ExpertChoiceRouter::HParams{.capacity_factor = 2.0}),
                   by_expert_choice({}, 3));
}

TEST_CASE("shared experts process every token") {
  MoeFeedForward::HParams p = layer_of(TopKRouter::HParams{});
  p.num_shared_experts = 2;
  const TestedLayer layer(p, kInput, kExpertParallel);
  layer.check_gradients();
  ReferenceInputs zero = Numbers().inputs();
  zero["down"].assign(kExperts * kHidden * kEmbed, 0.0);
  zero["shared.up"] = sample(kEmbed * 2 * kHidden, 0.3, 1.0);
  zero["shared.gate"] = sample(kEmbed * 2 * kHidden, 0.4, 1.0);
  zero["shared.down"] = sample(2 * kHidden * kEmbed, 0.6, 1.0);
  const FeedForward::HParams shared{.model_dims = kEmbed,
                                    .hidden_dims = 2 * kHidden,
                                    .activation_tpl = SiLU::HParams{},
                                    .use_gated_activation = true};
  const Values alone = TestedLayer(shared, kInput,
                                   {.values = {{"x", zero["x"]},
                                               {"up", zero["shared.up"]},
                                               {"gate", zero["shared.gate"]},
                                               {"down", zero["shared.down"]}}})
                           .result();
  require_close(TestedLayer(p, kInput, {.values = zero}).result(), alone, 1e-9);
}

// Returns the value that a layer adds under this name, on one device and on the mesh.
double reported(const MoeFeedForward::HParams& p, const std::string& name, bool is_loss) {
  const Numbers n;
  Values values;
  for (const LayerSetting& setting : {kOneDevice, kExpertParallel}) {
    LayerTrial trial(Mode::kEval, Mesh::standard(setting.mesh.ici_mesh_shape),
                     make_rules(setting.rules));
    const std::string split = setting.rules.weights.empty() ? "" : "/data";
    const Tensor x = trial.in("x", fmt::format("f32[\"batch{}=2 seq=6 embed=4\"]", split), n.x);
    values.push_back(trial
                         .run(Template<UnaryLayer>(p), n.inputs(),
                              [&](const UnaryLayer& layer) {
                                const SummaryScope summaries;
                                layer(x);
                                if (is_loss) return summaries.losses().at("router." + name);
                                const Metric metric = summaries.metrics().at("router." + name);
                                return metric.sum / metric.weight;
                              })
                         .values.at(0));
  }
  REQUIRE(values[1] == Approx(values[0]));
  return values[0];
}

TEST_CASE("routers report losses, load, entropy and dropped tokens by their formulas") {
  const Numbers n;
  constexpr double kTokens = kBatch * kSeq;
  double entropy = 0.0, by_batch = 0.0, by_example = 0.0, by_first = 0.0, z_loss = 0.0,
         dropped = 0.0;
  Values all_counts(kExperts, 0.0), all_shares(kExperts, 0.0);
  for (size_t example = 0; example < kBatch; ++example) {
    Values counts(kExperts, 0.0), firsts(kExperts, 0.0), summed(kExperts, 0.0);
    for (size_t s = 0; s < kSeq; ++s) {
      const size_t token = example * kSeq + s;
      const Values shares = scores_of(n, token, RouterScores::kSoftmax);
      for (const size_t expert : greatest(shares, 2)) counts[expert] += 1.0;
      firsts[greatest(shares, 1).at(0)] += 1.0;
      double sum_of_exponentials = 0.0;
      for (size_t e = 0; e < kExperts; ++e) {
        summed[e] += shares[e];
        entropy -= shares[e] * std::log(shares[e]) / kTokens;
        double logit = 0.0;
        for (size_t i = 0; i < kEmbed; ++i)
          logit += n.x[token * kEmbed + i] * n.router[i * kExperts + e];
        sum_of_exponentials += std::exp(logit);
      }
      z_loss += std::pow(std::log(sum_of_exponentials), 2.0) / kTokens;
    }
    for (size_t e = 0; e < kExperts; ++e) {
      all_counts[e] += counts[e];
      all_shares[e] += summed[e];
      by_example += kExperts * (counts[e] / (2.0 * kSeq)) * (summed[e] / kSeq) / kBatch;
      by_first += kExperts * (firsts[e] / kSeq) * (summed[e] / kSeq) / kBatch;
      dropped += std::max(0.0, counts[e] - 2.0) / (2.0 * kTokens);
    }
  }
  for (size_t e = 0; e < kExperts; ++e)
    by_batch += kExperts * (all_counts[e] / (2.0 * kTokens)) * (all_shares[e] / kTokens);
  REQUIRE(std::abs(by_batch - by_example) > 1e-3);
  REQUIRE(std::abs(by_first - by_example) > 1e-3);
  REQUIRE(dropped > 0.0);

  TopKRouter::HParams router{
      .capacity_factor = 0.5, .load_balance_weight = 0.3, .z_loss_weight = 0.7};
  REQUIRE(reported(layer_of(router), "load_balance", true) == Approx(0.3 * by_batch));
  REQUIRE(reported(layer_of(router), "router_z_loss", true) == Approx(0.7 * z_loss));
  REQUIRE(reported(layer_of(router), "router_entropy", false) == Approx(entropy));
  REQUIRE(reported(layer_of(router), "dropped_tokens", false) == Approx(dropped));
  // The load of the first expert, relative to an equal share.
  REQUIRE(reported(layer_of(router), "expert_load", false) ==
          Approx(all_counts[0] / (2.0 * kTokens / kExperts)));
  router.load_balance_scope = BalanceScope::kExample;
  REQUIRE(reported(layer_of(router), "load_balance", true) == Approx(0.3 * by_example));
  router.load_balance_first_choices = true;
  REQUIRE(reported(layer_of(router), "load_balance", true) == Approx(0.3 * by_first));
}

TEST_CASE("jitter changes the routing of training steps only") {
  const TopKRouter::HParams plain, jittered{.jitter = 0.5};
  const auto result = [](const TopKRouter::HParams& router, Mode mode) {
    LayerTrial trial(mode);
    const Tensor x = trial.in("x", kInput, Numbers().x);
    return trial.apply(layer_of(router), x, Numbers().inputs());
  };
  REQUIRE(result(jittered, Mode::kEval) == result(plain, Mode::kEval));
  REQUIRE(result(jittered, Mode::kTrain) != result(plain, Mode::kTrain));
  REQUIRE(result(plain, Mode::kTrain) == result(plain, Mode::kEval));
}

TEST_CASE("a router computes in f32 whatever the dtype of the layers") {
  MoeFeedForward::HParams p = layer_of(TopKRouter::HParams{.z_loss_weight = 1.0});
  p.layer.dtypes = DTypePolicy{.compute = DType::kBF16};
  LayerTrial trial;
  const Tensor x = trial.in("x", "bf16[\"batch=2 seq=6 embed=4\"]", Numbers().x);
  DType result = DType::kF32, loss = DType::kBF16;
  trial.run(Template<UnaryLayer>(p), Numbers().inputs(), [&](const UnaryLayer& layer) {
    const SummaryScope summaries;
    const Tensor y = layer(x);
    result = y.dtype();
    loss = summaries.losses().at("router.router_z_loss").dtype();
    return y;
  });
  REQUIRE(result == DType::kBF16);
  REQUIRE(loss == DType::kF32);
}

TEST_CASE("a balancing bias is f32 whatever the dtype of weights: small steps would vanish") {
  MoeFeedForward::HParams p = layer_of(TopKRouter::HParams{.bias_rate = 0.001});
  p.layer.dtypes = DTypePolicy{.param = DType::kBF16};
  const auto layer = Template<UnaryLayer>(p).instantiate();
  REQUIRE(layer->parameters().find("router.w")->type.dtype == DType::kBF16);
  REQUIRE(layer->parameters().find("router.bias")->type.dtype == DType::kF32);
}

TEST_CASE("a bias changes which experts are chosen, but not their weights") {
  const TopKRouter::HParams router{.scores = RouterScores::kSigmoid, .bias_rate = 0.001};
  ReferenceInputs inputs = Numbers().inputs();
  inputs["router.bias"] = Values(kExperts, 0.0);
  const auto result = [&] {
    return TestedLayer(layer_of(router), kInput, {.values = inputs}).result();
  };
  require_close(result(), by_token_choice({}, router, 0), 1e-9);
  inputs["router.bias"] = {7.0, 7.0, 7.0, 7.0};
  require_close(result(), by_token_choice({}, router, 0), 1e-9);
  // Scores are below 1: experts 1 and 3 are always chosen, with weights from their own scores.
  inputs["router.bias"] = {0.0, 2.0, 0.0, 2.0};
  const Numbers n;
  Values expected(n.x.size(), 0.0);
  for (size_t token = 0; token < kBatch * kSeq; ++token) {
    const Values scores = scores_of(n, token, RouterScores::kSigmoid);
    for (const size_t expert : {size_t{1}, size_t{3}})
      add_expert(n, token, expert, scores[expert] / (scores[1] + scores[3]), &expected);
  }
  require_close(result(), expected, 1e-9);
}

TEST_CASE("a router refuses what it cannot do") {
  const auto made = [](const Template<BaseRouter>& router) {
    return TestedLayer(layer_of(router), kInput).result();
  };
  REQUIRE_THROWS_WITH(made(TopKRouter::HParams{.top_k = 5}),
                      Contains("top_k is 5, expected 1 to num_experts=4"));
  REQUIRE_THROWS_WITH(made(TopKRouter::HParams{.top_k = 0}), Contains("top_k is 0, expected 1 to"));
  REQUIRE_THROWS_WITH(made(TopKRouter::HParams{.capacity_factor = 0.0}),
                      Contains("capacity_factor is 0.0, expected above 0 (unset: every token is "));
  REQUIRE_THROWS_WITH(made(TopKRouter::HParams{.jitter = 1.0}),
                      Contains("jitter is 1.0, expected at least 0 and below 1"));
  REQUIRE_THROWS_WITH(made(ExpertChoiceRouter::HParams{.capacity_factor = -1.0}),
                      Contains("capacity_factor is -1.0, expected above 0"));
  LayerSetting three = kExpertParallel;
  three.mesh.ici_mesh_shape = {1, 3, 1};
  REQUIRE_THROWS_WITH(
      TestedLayer(layer_of(TopKRouter::HParams{}), "f32[\"batch=3 seq=6 embed=4\"]", three)
          .result(),
      Contains("experts=4 cannot be split by data=3"));
}

}  // namespace
}  // namespace tessera
