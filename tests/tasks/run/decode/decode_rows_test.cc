// SPDX-License-Identifier: Apache-2.0
// The logits of a decoded row do not depend on other rows' tokens or the number of rows. The cache
// is updated in place, its rows are reordered, and models without a cache are rejected.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/layout.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/classification_model.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"
#include "tests/support/spmd_case.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 16;

std::unique_ptr<BaseTask> task_of(const SpmdCase& trial) {
  return Template<BaseTask>(spmd_task(trial)).instantiate();
}

DecodeSetting setting_of(int64_t batch) { return {.batch = batch, .cache_length = kLength}; }

// Logits of row 0 with fixed tokens, next to other rows: after a prompt in chunks of three, of
// which the second is short, and after two more tokens.
std::vector<std::vector<float>> logits_beside(const SpmdCase& trial, int64_t batch, int32_t others,
                                              bool others_idle = false, int threads = 1) {
  DecodeTrial decoder(*task_of(trial), setting_of(batch), {1, 3}, threads);
  std::vector<std::vector<float>> result;
  const TokenRows calls = {{5, 9, 2}, {17, 33}, {8}, {40}};
  for (size_t call = 0; call < calls.size(); ++call) {
    TokenRows tokens = {calls[call]};
    for (int32_t row = 1; row < batch; ++row) {
      std::vector<int32_t>& other = tokens.emplace_back();
      const size_t count = others_idle ? 0 : std::min(calls[call].size() + 1, size_t{3});
      for (size_t i = 0; i < (call < 2 ? count : std::min<size_t>(count, 1)); ++i)
        other.push_back((others + 7 * row + static_cast<int32_t>(i)) % 64);
    }
    result.push_back(decoder.take(call < 2 ? 3 : 1, tokens)[0]);
  }
  return result;
}

TEST_CASE("a row's logits have the same bits for any other rows and any number of rows",
          "[levels]") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const SpmdCase trial{.model = model, .repeated = model == TrialModel::kGpt2, .compute = compute};
  CAPTURE(trial.text());
  const auto expected = logits_beside(trial, 4, 1);
  REQUIRE(expected == logits_beside(trial, 4, 23));
  REQUIRE(expected == logits_beside(trial, 4, 0, true));
  REQUIRE(expected == logits_beside(trial, 1, 0));
  REQUIRE(expected == logits_beside(trial, 5, 3));
  REQUIRE(expected == logits_beside(trial, 4, 1, false, 2));
}

TEST_CASE("weights that are cast once give the same bits as weights cast in each step") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const bool repeated = GENERATE(false, true);
  const SpmdCase trial{.model = model, .repeated = repeated, .compute = DType::kBF16};
  CAPTURE(trial.text());
  const auto task = task_of(trial);
  std::vector<std::vector<float>> results[2];
  for (const bool keep : {false, true}) {
    DecodeSetting setting = setting_of(2);
    setting.keep_cast_weights = keep;
    DecodeTrial decoder(*task, setting, {1, 3});
    results[keep ? 1 : 0] = decoder.take(3, {{5, 9, 2}, {7, 8}});
    int casts = 0;
    const StepProgram& plan = decoder.executor().plan(decoder.program(1));
    for (const Placement& input : plan.inputs)
      if (input.name.starts_with("cache/bf16/")) ++casts;
    REQUIRE((casts > 5) == keep);
  }
  REQUIRE(results[0] == results[1]);
  // In f32 nothing is cast.
  DecodeSetting setting = setting_of(2);
  setting.keep_cast_weights = true;
  const auto plain = task_of({.model = model, .repeated = repeated});
  REQUIRE(plain->cast_weights_graph(setting, Weights::kTrained).outputs().empty());
}

TEST_CASE("a cache is updated in place, also inside loops") {
  const bool repeated = GENERATE(false, true);
  CAPTURE(repeated);
  DecodeTrial decoder(*task_of({.model = TrialModel::kLlama, .repeated = repeated}), setting_of(2),
                      {1, 8});
  for (const int64_t chunk : {1, 8}) {
    const StepProgram& plan = decoder.executor().plan(decoder.program(chunk));
    int updates = 0;
    for (const Launch& launch : plan.launches) {
      REQUIRE(launch.graph != plan.helpers.get());  // No copies.
      if (launch.graph->node(launch.node).op->name != "cache_update") continue;
      REQUIRE(launch.inputs[0] == launch.outputs[0]);
      REQUIRE(launch.outputs[0] < plan.persistent_bytes);
      ++updates;
    }
    REQUIRE(updates == 4);  // Keys and values of two layers.
  }
}

TEST_CASE("rows of a cache are reordered, also on meshes") {
  const auto [ici, strategy] = GENERATE(table<std::vector<int64_t>, std::string>(
      {{{1, 1, 1}, "replica"}, {{1, 2, 2}, "fsdp and tensor"}}));
  const bool repeated = GENERATE(false, true);
  const SpmdCase trial{
      .model = TrialModel::kLlama, .ici = ici, .strategy = strategy, .repeated = repeated};
  CAPTURE(trial.text());
  const TrialRules& rules = trial.rules();
  DecodeTrial decoder(*task_of(trial),
                      {.mesh = trial.mesh(),
                       .rules = {parse_rules(rules.weights), parse_rules(rules.activations)},
                       .batch = 4,
                       .rows_per_prompt = 2,
                       .cache_length = kLength},
                      {1, 3});
  const TokenRows prompts = {{1, 2, 3}, {9, 8}, {30, 31, 32}, {7}};
  decoder.take(3, prompts);
  const auto before = decoder.take(1, {{4}, {4}, {4}, {4}});
  decoder.forget();
  decoder.take(3, prompts);
  const std::vector<int32_t> parents = {1, 0, 1, 1};
  decoder.reorder(parents);
  const auto after = decoder.take(1, {{4}, {4}, {4}, {4}});
  for (size_t row = 0; row < parents.size(); ++row) {
    const auto& expected = before[row / 2 * 2 + static_cast<size_t>(parents[row])];
    for (size_t i = 0; i < expected.size(); ++i)
      REQUIRE(after[row][i] == Approx(expected[i]).margin(1e-5));
  }
  REQUIRE(before[0] != before[1]);
}

TEST_CASE("a row whose cache is full does not change other rows") {
  const SpmdCase trial{.model = TrialModel::kGpt2};
  const auto after_full = [&](int64_t steps) {
    DecodeTrial decoder(*task_of(trial), setting_of(2), {1, 8});
    decoder.take(8, {{1, 2, 3, 4, 5, 6, 7, 8}, {5, 6}});
    for (int64_t i = 0; i < steps; ++i) decoder.take(1, {{9}, {}});
    return decoder.take(1, {{}, {7}})[1];
  };
  REQUIRE(after_full(2) == after_full(12));  // The cache has room for eight.
}

}  // namespace

// Attention over the new tokens only.
class Forgetful final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = Forgetful;
    static constexpr std::string_view kName = "Forgetful";
    Required<int64_t> model_dims;
    FIELDS(model_dims)
  };
  explicit Forgetful(const HParams&) {}
  Tensor fprop(Tensor x, const SequenceInfo&) const override {
    const Tensor heads = split_axis(x, "embed", {"heads", 2, {}}, {"head_dim", 16, {}});
    const Tensor keys = rename(rename(heads, "seq", "key_seq"), "heads", "kv_heads");
    return merge_axes(attention(heads, keys, keys, {}), "heads", "head_dim", "embed");
  }
};
const TemplateRegistrar<SequenceLayer, Forgetful> kForgetful;

// The path of the second layer begins with that of the first, which keeps a cache.
class HalfForgetful final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = HalfForgetful;
    static constexpr std::string_view kName = "HalfForgetful";
    Required<int64_t> model_dims, num_heads;
    LayerHParams layer;
    FIELDS(model_dims, num_heads, layer)
  };
  explicit HalfForgetful(const HParams& p) : SequenceLayer(p.layer) {
    kept_ = child<SequenceLayer>(
        "part", DotProductAttention::HParams{.model_dims = p.model_dims, .num_heads = p.num_heads});
    forgotten_ = child<SequenceLayer>("part_too", Forgetful::HParams{.model_dims = p.model_dims});
  }
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override {
    return forgotten_(kept_(x, sequence), sequence);
  }

 private:
  ChildLayer<SequenceLayer> kept_, forgotten_;
};
const TemplateRegistrar<SequenceLayer, HalfForgetful> kHalfForgetful;

namespace {

SingleTask::HParams with_attention(Template<SequenceLayer> attention, bool repeated = false) {
  SingleTask::HParams task = spmd_task({.model = TrialModel::kGpt2, .repeated = repeated});
  Template<SequenceLayer>& stack = task.model.as<LanguageModel::HParams>()
                                       .lm_tpl.as<TransformerLm::HParams>()
                                       .stacked_transformer_tpl;
  Template<SequenceLayer>& block = repeated ? stack.as<Repeated::HParams>().block_tpl
                                            : stack.as<StackedTransformer::HParams>().block_tpl;
  block.as<TransformerBlock::HParams>().attention_tpl = std::move(attention);
  return task;
}

std::string refusal(const SingleTask::HParams& p, const DecodeSetting& setting = setting_of(2)) {
  return error_of(
      [&] { Template<BaseTask>(p).instantiate()->decode_graph(setting, Weights::kTrained); });
}

TEST_CASE("a model that cannot decode token by token is rejected with a reason") {
  using Catch::Contains;
  REQUIRE_THAT(refusal(with_attention(DotProductAttention::HParams{.causal = false})),
               Contains("x_layers[0].attention is not causal") && Contains("set causal=true"));
  for (const bool repeated : {false, true}) {
    REQUIRE_THAT(refusal(with_attention(Forgetful::HParams{}, repeated)),
                 Contains("cannot decode token by token: attention sees the new tokens only") &&
                     Contains("decode_rows_test.cc") && Contains(".attention]"));
  }
  REQUIRE_THAT(refusal(with_attention(HalfForgetful::HParams{})),
               Contains("attention sees the new tokens only") && Contains(".part_too]"));
  SingleTask::HParams classes = spmd_task({});
  classes.model = ClassificationModel::HParams{
      .network_tpl = Mlp::HParams{.input_dims = 4, .hidden_dims = {3}},
      .softmax_tpl = FullSoftmax::HParams{.vocab_size = 2, .model_dims = 3}};
  REQUIRE_THAT(refusal(classes),
               Contains("cannot decode token by token") && Contains("fprop_next_logits"));
  REQUIRE_THAT(refusal(spmd_task({.model = TrialModel::kGpt2}), {.batch = 2, .cache_length = 17}),
               Contains("the cache has 17 positions, but the table only max_seq_length=16"));
  REQUIRE_THAT(refusal(spmd_task({.model = TrialModel::kLlama}), {.batch = 2, .cache_length = 0}),
               Contains("the decode cache has 0 positions"));
}

}  // namespace
}  // namespace tessera
