// SPDX-License-Identifier: Apache-2.0
// Padding in a mixture of experts: the results, losses and metrics of the other tokens are those
// without padding, whatever the padding contains, for each router and on meshes.
#include <cmath>

#include "layers/experts/moe_feed_forward.h"
#include "tasks/testing/tested_layer.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

constexpr size_t kEmbed = 4;

MoeFeedForward::HParams layer_of(const Template<BaseRouter>& router) {
  return {.model_dims = kEmbed, .hidden_dims = 2, .num_experts = 4, .router_tpl = router};
}

// Values without ties.
Values sample(size_t count, double frequency) {
  Values values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = 2.0 * std::sin(frequency * static_cast<double>((i + 1) * (i + 2)));
  return values;
}

ReferenceInputs weights() {
  return {{"router.w", sample(kEmbed * 4, 0.71)},
          {"up", sample(4 * kEmbed * 2, 0.53)},
          {"down", sample(4 * 2 * kEmbed, 0.43)}};
}

TestedLayer tested(const Template<BaseRouter>& router, size_t rows, size_t seq, const Values& x,
                   const Values& segments, LayerSetting setting) {
  setting.values = weights();
  setting.values["x"] = x;
  setting.values["segment_ids"] = segments;
  return {Template<UnaryLayer>(layer_of(router)),
          {{"x", fmt::format("f32[\"batch={} seq={} embed=4\"]", rows, seq)},
           {"segment_ids", fmt::format("i32[\"batch={} seq={}\"]", rows, seq)}},
          [](const UnaryLayer& layer, const NamedTensors& in) { return layer(in.at("x")); },
          setting};
}

// Two rows of six tokens become four rows of eight: padding before and after the tokens of a row,
// and rows of padding only.
const Values kPaddedSegments = {0, 1, 1, 1, 1, 1, 1, 0,  //
                                0, 0, 0, 0, 0, 0, 0, 0,  //
                                1, 1, 2, 2, 2, 3, 0, 0,  //
                                0, 0, 0, 0, 0, 0, 0, 0};

// The elements of x["batch seq embed"] at tokens, and the greatest element at padding.
std::pair<Values, double> at_tokens(const Values& x) {
  Values kept;
  double padding = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (kPaddedSegments[i / kEmbed] != 0) {
      kept.push_back(x[i]);
    } else {
      padding = std::max(padding, std::abs(x[i]));
    }
  }
  return {kept, padding};
}

void require_equal(const std::map<std::string, Values>& got,
                   const std::map<std::string, Values>& expected) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, values] : expected) {
    INFO(name);
    require_close(got.at(name), values, 1e-9);
  }
}

const LayerSetting kExpertParallel{
    .mesh = {.ici_mesh_shape = {1, 2, 2}},
    .rules = {.weights = "experts -> data, embed -> data, mlp -> mdl",
              .activations = "residual: seq -> mdl, experts -> data, batch -> (replica, data), "
                             "seq -> mdl"}};

TEST_CASE("padding takes no expert's capacity and is in no loss, metric or token's result") {
  // A capacity of one with and without padding, of which one token more would be dropped.
  const Template<BaseRouter> router = GENERATE(
      Template<BaseRouter>(TopKRouter::HParams{.z_loss_weight = 0.5}),
      Template<BaseRouter>(TopKRouter::HParams{.top_k = 1,
                                               .scores = RouterScores::kSigmoid,
                                               .load_balance_scope = BalanceScope::kExample}),
      Template<BaseRouter>(TopKRouter::HParams{
          .capacity_factor = 0.25, .load_balance_weight = 0.3, .z_loss_weight = 0.5}),
      Template<BaseRouter>(TopKRouter::HParams{
          .top_k = 3, .capacity_factor = 0.1, .load_balance_scope = BalanceScope::kExample}),
      Template<BaseRouter>(TopKRouter::HParams{.load_balance_first_choices = true}),
      Template<BaseRouter>(ExpertChoiceRouter::HParams{.z_loss_weight = 0.5}),
      Template<BaseRouter>(ExpertChoiceRouter::HParams{.capacity_factor = 9.0}));
  const LayerSetting setting = GENERATE(LayerSetting(), kExpertParallel);
  const Values padded = sample(kPaddedSegments.size() * kEmbed, 0.37);
  const TestedLayer with = tested(router, 4, 8, padded, kPaddedSegments, setting);
  const TestedLayer without =
      tested(router, 2, 6, at_tokens(padded).first, Values(12, 1.0), LayerSetting());
  const auto [tokens, padding] = at_tokens(with.result());
  require_close(tokens, without.result(), 1e-9);
  REQUIRE(padding == 0.0);
  require_equal(with.losses(), without.losses());
  require_equal(with.metrics(), without.metrics());
  with.check_gradients();
}

TEST_CASE("the balance of examples of one token is the mean of each alone") {
  const TopKRouter::HParams router{
      .top_k = 1, .load_balance_weight = 0.3, .load_balance_scope = BalanceScope::kExample};
  const auto loss_of = [&](const Values& x) {
    const size_t examples = x.size() / kEmbed;
    const auto losses =
        tested(router, static_cast<int64_t>(examples), 1, x, Values(examples, 1.0), LayerSetting())
            .losses();
    REQUIRE(losses.size() == 1);
    return losses.begin()->second.at(0);
  };
  const Values x = sample(2 * kEmbed, 0.37);
  const Values first(x.begin(), x.begin() + kEmbed), second(x.begin() + kEmbed, x.end());
  REQUIRE(loss_of(x) == Approx((loss_of(first) + loss_of(second)) / 2.0));
}

TEST_CASE("a router without weights of losses adds none") {
  const Template<BaseRouter> router =
      GENERATE(Template<BaseRouter>(TopKRouter::HParams{.load_balance_weight = 0.0}),
               Template<BaseRouter>(ExpertChoiceRouter::HParams{}));
  const Values x = sample(8 * kEmbed, 0.37);
  REQUIRE(tested(router, 2, 4, x, Values(8, 1.0), LayerSetting()).losses().empty());
}

TEST_CASE("a batch of padding only has no losses of routers and no results") {
  const Template<BaseRouter> router = TopKRouter::HParams{.z_loss_weight = 0.5};
  const TestedLayer layer = tested(router, 2, 4, sample(32, 0.37), Values(8, 0.0), LayerSetting());
  REQUIRE(layer.result() == Values(32, 0.0));
  for (const auto& [name, loss] : layer.losses()) REQUIRE(loss == Values{0.0});
}

}  // namespace
}  // namespace tessera
