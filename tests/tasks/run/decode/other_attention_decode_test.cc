// SPDX-License-Identifier: Apache-2.0
// Models with latent and with linear attention decode: the logits of a whole forward pass, whatever
// the chunks and the mesh, from a cache of one latent and one rotary key a token, or from a state.
#include <algorithm>
#include <cmath>

#include "layers/attention/gated_delta_net.h"
#include "layers/attention/latent_attention.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"
#include "tests/support/spmd_case.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 12;

// Two layers of eight heads.
std::unique_ptr<BaseTask> task_of(const Template<SequenceLayer>& attention, bool repeated,
                                  DType compute = DType::kF32) {
  SingleTask::HParams task =
      spmd_task({.model = TrialModel::kLlama, .repeated = repeated, .compute = compute});
  Template<SequenceLayer>& stack = task.model.as<LanguageModel::HParams>()
                                       .lm_tpl.as<TransformerLm::HParams>()
                                       .stacked_transformer_tpl;
  Template<SequenceLayer>& block = repeated ? stack.as<Repeated::HParams>().block_tpl
                                            : stack.as<StackedTransformer::HParams>().block_tpl;
  block.as<TransformerBlock::HParams>().attention_tpl = attention;
  return Template<BaseTask>(task).instantiate();
}

// Keys are wider than values.
const LatentAttention::HParams kDeepSeek{.kv_lora_rank = 12, .q_lora_rank = 16, .rope_dims = 6};
const GatedDeltaNet::HParams kDeltaNet{
    .num_kv_heads = 4, .dims_per_head = 5, .value_dims_per_head = 3, .norm_epsilon = 1e-3};

TokenRows rows_of_tokens() {
  TokenRows rows(4);
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t i = 0; i < kLength; ++i)
      rows[row].push_back(static_cast<int32_t>((row * 29 + i * i * 7 + 3) % 64));
  return rows;
}

// The largest difference from the logits of a whole forward pass, relative to the largest of them.
double worst_difference(const Template<SequenceLayer>& attention, const SpmdCase& trial,
                        int64_t chunk, DType compute = DType::kF32) {
  const TokenRows rows = rows_of_tokens();
  const auto task = task_of(attention, trial.repeated, compute);
  const auto expected = whole_logits(*task, kLength, rows);
  const size_t vocab = expected[0].size() / kLength;
  const TrialRules& rules = trial.rules();
  DecodeTrial decoder(*task,
                      {.mesh = trial.mesh(),
                       .rules = {parse_rules(rules.weights), parse_rules(rules.activations)},
                       .batch = 4,
                       .cache_length = kLength},
                      {chunk});
  double worst = 0.0, largest = 0.0;
  // Rows are read by different numbers of tokens.
  while (decoder.length(0) < kLength) {
    TokenRows tokens;
    for (size_t row = 0; row < rows.size(); ++row) {
      const int64_t from = decoder.length(row);
      const int64_t count = std::min(kLength - from, std::max<int64_t>(chunk - (row % 2), 1));
      tokens.emplace_back(rows[row].begin() + from, rows[row].begin() + from + count);
    }
    const auto logits = decoder.take(chunk, tokens);
    for (size_t row = 0; row < rows.size(); ++row)
      for (size_t i = 0; !tokens[row].empty() && i < vocab; ++i) {
        const double want =
            expected[row][(static_cast<size_t>(decoder.length(row)) - 1) * vocab + i];
        largest = std::max(largest, std::abs(want));
        worst = std::max(worst, std::abs(want - logits[row][i]));
      }
  }
  REQUIRE(largest > 0.1);
  return worst / std::max(largest, 1.0);
}

TEST_CASE("decoding with latent attention gives the logits of the whole forward pass") {
  LatentAttention::HParams jaxformer = kDeepSeek;
  jaxformer.rope_source = RotarySource::kLatents;
  jaxformer.normalize_latents = false;
  jaxformer.use_bias = true;
  LatentAttention::HParams without_positions = kDeepSeek;
  without_positions.rope_dims = 0;
  without_positions.value_dims_per_head = 10;  // Values wider than keys.
  for (const auto& attention : {kDeepSeek, jaxformer, without_positions})
    for (const bool repeated : {false, true})
      for (const int64_t chunk : {1, 5}) {
        CAPTURE(attention.rope_dims, repeated, chunk);
        REQUIRE(worst_difference(attention, {.repeated = repeated}, chunk) < 1e-4);
      }
}

TEST_CASE("decoding with latent attention gives the same logits on meshes") {
  const auto [ici, strategy] = GENERATE(table<std::vector<int64_t>, std::string>(
      {{{1, 2, 1}, "fsdp"}, {{1, 1, 2}, "tensor"}, {{1, 2, 2}, "fsdp and sequence"}}));
  const SpmdCase trial{.ici = ici, .strategy = strategy, .repeated = true};
  CAPTURE(trial.text());
  REQUIRE(worst_difference(kDeepSeek, trial, 5) < 1e-4);
}

// Convolutions of more and of fewer tokens than a call, and of one.
TEST_CASE("decoding with Gated DeltaNet gives the logits of the whole forward pass") {
  for (const int64_t conv_width : {4, 9, 1})
    for (const bool repeated : {false, true})
      for (const int64_t chunk : {1, 5}) {
        CAPTURE(conv_width, repeated, chunk);
        GatedDeltaNet::HParams p = kDeltaNet;
        p.conv_width = conv_width;
        REQUIRE(worst_difference(p, {.repeated = repeated}, chunk) < 1e-4);
      }
  for (const char* const strategy : {"fsdp", "tensor", "fsdp and sequence"}) {
    const SpmdCase trial{.ici = {1, 2, 2}, .strategy = strategy, .repeated = true};
    CAPTURE(trial.text());
    REQUIRE(worst_difference(kDeltaNet, trial, 5) < 1e-4);
  }
}

TEST_CASE("decoding gives the same logits if the latents are split") {
  SpmdCase trial{.ici = {1, 2, 2}, .repeated = true};
  const std::string latents = "kv_latent -> mdl, q_latent -> mdl";
  trial.own_rules = TrialRules{"latents", latents, "batch -> data, " + latents};
  REQUIRE(worst_difference(kDeepSeek, trial, 5) < 1e-4);
}

// bf16 has 8 bits, and the latent is rounded as in the whole pass.
TEST_CASE("decoding with latent attention in bf16 stays within 2^-5 of the largest logit") {
  REQUIRE(worst_difference(kDeepSeek, {.repeated = true}, 5, DType::kBF16) < 1.0 / 32.0);
}

TEST_CASE("the cache of latent attention holds one latent and one rotary key a token") {
  const auto task = task_of(kDeepSeek, false);
  const Graph graph = task->decode_graph({.batch = 4, .cache_length = kLength}, Weights::kTrained);
  int64_t caches = 0, numbers = 0;
  for (const GraphInput& input : graph.inputs()) {
    if (!input.name.starts_with("cache/")) continue;
    ++caches;
    numbers += graph.type(input.value).elements();
  }
  REQUIRE(caches == 2 * 2);  // Two caches in each layer.
  REQUIRE(numbers == 2 * 4 * kLength * (12 + 6));
}

TEST_CASE("the state of Gated DeltaNet is as large for any number of tokens") {
  const auto task = task_of(kDeltaNet, false);
  for (const int64_t length : {12, 40}) {
    const Graph graph = task->decode_graph({.batch = 4, .cache_length = length}, Weights::kTrained);
    int64_t numbers = 0;
    for (const GraphInput& input : graph.inputs())
      if (input.name.starts_with("cache/")) numbers += graph.type(input.value).elements();
    // In each layer matrices, and three tokens before the next of queries, keys and values.
    REQUIRE(numbers == 2 * 4 * (8 * 5 * 3 + 3 * (2 * 4 * 5 + 8 * 3)));
  }
}

TEST_CASE("latent attention that is not causal cannot decode") {
  LatentAttention::HParams p = kDeepSeek;
  p.causal = false;
  const auto task = task_of(p, false);
  REQUIRE_THAT(
      error_of(
          [&] { task->decode_graph({.batch = 4, .cache_length = kLength}, Weights::kTrained); }),
      Catch::Contains("x_layers[0].attention is not causal") && Catch::Contains("set causal=true"));
}

}  // namespace
}  // namespace tessera
