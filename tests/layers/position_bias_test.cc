// SPDX-License-Identifier: Apache-2.0
// Biases of scores by distance, and layers with one shared_id. Models that have them are compared
// with transformers in tests/tasks/interop.
#include "layers/attention/position_bias.h"

#include <numeric>

#include "core/base/error.h"
#include "layers/models/language_model.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

constexpr int64_t kMost = 140;

// The biases of one head for the distances -kMost to kMost, where bucket i has the bias i.
Values buckets(RelativePositionBias::HParams p) {
  p.num_heads = 1;
  LayerTrial trial;
  Values distances(2 * kMost + 1), table(static_cast<size_t>(p.num_buckets));
  std::iota(distances.begin(), distances.end(), -kMost);
  std::iota(table.begin(), table.end(), 0);
  const Tensor at = trial.in("distance", "i32[\"seq=1 key_seq=281\"]", distances);
  return trial
      .run(Template<BasePositionBias>(p), {{"w", table}},
           [&](const BasePositionBias& layer) {
             return layer(at, {"heads", 1, {}});
           })
      .values;
}

struct Start {
  int64_t distance;
  double bucket;
};

Values filled(const std::vector<Start>& starts) {
  Values values;
  size_t at = 0;
  for (int64_t distance = -kMost; distance <= kMost; ++distance) {
    if (at + 1 < starts.size() && distance == starts[at + 1].distance) ++at;
    values.push_back(starts[at].bucket);
  }
  return values;
}

// The first distance of each range, printed by T5Attention._relative_position_bucket of
// transformers 5.24.
TEST_CASE("distances have the buckets of T5") {
  REQUIRE(
      buckets({}) ==
      filled({{-140, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8},
              {-7, 7},    {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},
              {1, 17},    {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},
              {12, 25},   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31}}));
  REQUIRE(buckets({.bidirectional = false}) ==
          filled({{-140, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25},
                  {-51, 24},  {-45, 23},  {-39, 22}, {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18},
                  {-20, 17},  {-18, 16},  {-15, 15}, {-14, 14}, {-13, 13}, {-12, 12}, {-11, 11},
                  {-10, 10},  {-9, 9},    {-8, 8},   {-7, 7},   {-6, 6},   {-5, 5},   {-4, 4},
                  {-3, 3},    {-2, 2},    {-1, 1},   {0, 0}}));
  REQUIRE(buckets({.num_buckets = 8, .max_distance = 6}) ==
          filled({{-140, 3}, {-3, 2}, {-1, 1}, {0, 0}, {1, 5}, {2, 6}, {4, 7}}));
  REQUIRE(buckets({.num_buckets = 10, .max_distance = 37, .bidirectional = false}) ==
          filled({{-140, 9},
                  {-24, 8},
                  {-16, 7},
                  {-11, 6},
                  {-7, 5},
                  {-4, 4},
                  {-3, 3},
                  {-2, 2},
                  {-1, 1},
                  {0, 0}}));
  REQUIRE_THROWS_WITH(buckets({.num_buckets = 32, .max_distance = 8}),
                      Catch::Contains("max_distance=8") && Catch::Contains("nearest 8 distances"));
}

Values slopes(int64_t heads) {
  LayerTrial trial;
  const Tensor at = trial.in("distance", "i32[\"seq=1 key_seq=1\"]", {-2});
  return trial
      .run(Template<BasePositionBias>(AlibiBias::HParams{}), {},
           [&](const BasePositionBias& layer) {
             return layer(at, {"heads", heads, {}});
           })
      .values;
}

// Slopes of build_alibi_tensor (BLOOM) of transformers 5.24, times -2.
TEST_CASE("heads have the slopes of ALiBi, also if their number is no power of two") {
  require_close(slopes(4), {-0.5, -0.125, -0.03125, -0.0078125}, 1e-7);
  require_close(slopes(6), {-0.5, -0.125, -0.03125, -0.0078125, -1.0, -0.25}, 1e-7);
}

// A model of three layers that share what `share` gives an id to.
template <typename Share>
std::vector<std::string> weights_of(bool repeated, Share share) {
  DotProductAttention::HParams attention{.position_bias_tpl = RelativePositionBias::HParams{}};
  FeedForward::HParams ffn;
  share(attention, ffn);
  const TransformerBlock::HParams block{.attention_tpl = attention, .ffn_tpl = ffn};
  TransformerLm::HParams lm{
      .vocab_size = 8, .model_dims = 4, .num_layers = 3, .num_heads = 2, .hidden_dims = 8};
  if (repeated) {
    lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  } else {
    lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  }
  std::vector<std::string> shared;
  for (const std::string& each :
       weight_list(Template<TransformerLm>(lm).instantiate()->parameters()))
    if (each.starts_with("shared.")) shared.push_back(each.substr(0, each.find(' ')));
  return shared;
}

TEST_CASE("layers with one shared_id, and those below them, have one set of weights") {
  const bool repeated = GENERATE(false, true);
  CAPTURE(repeated);
  using Attention = DotProductAttention::HParams;
  REQUIRE(weights_of(repeated, [](Attention& attention, FeedForward::HParams&) {
            attention.position_bias_tpl.as<RelativePositionBias::HParams>().layer.shared_id = "b";
          }) == std::vector<std::string>{"shared.b.w"});
  REQUIRE(weights_of(repeated,
                     [](Attention& attention, FeedForward::HParams& ffn) {
                       attention.layer.shared_id = "attention";
                       ffn.layer.shared_id = "mlp";
                     }) ==
          std::vector<std::string>{"shared.attention.query", "shared.attention.key",
                                   "shared.attention.value", "shared.attention.output",
                                   "shared.attention.position_bias.w", "shared.mlp.up",
                                   "shared.mlp.down"});
}

TEST_CASE("layers that differ cannot share weights") {
  const auto made = [](Template<SequenceLayer> first, Template<SequenceLayer> second) {
    LayerSequence::HParams p{.layers_tpl = {std::move(first), std::move(second)}};
    return Template<SequenceLayer>(p).instantiate();
  };
  const auto attention = [](int64_t heads, const char* id) {
    return DotProductAttention::HParams{
        .model_dims = 4, .num_heads = heads, .layer = {.shared_id = id}};
  };
  REQUIRE_NOTHROW(made(attention(2, "a"), attention(1, "b")));
  REQUIRE_THROWS_WITH(made(attention(2, "a"), attention(1, "a")),
                      Catch::Contains("shared.a.query") && Catch::Contains("same settings"));
  REQUIRE_THROWS_WITH(made(attention(2, "a[0]"), attention(2, "a[0]")),
                      Catch::Contains("shared_id=a[0]"));
}

}  // namespace
}  // namespace tessera
