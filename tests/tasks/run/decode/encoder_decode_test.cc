// SPDX-License-Identifier: Apache-2.0
// Decoding of models with an encoder and with biases of positions: the log-probability of each
// continuation is that of the whole forward pass in f64, for prompts of different lengths that take
// each other's rows, greedily and by beam search.
#include <cmath>

#include "core/base/error.h"
#include "core/devices/reference/interpreter.h"
#include "layers/models/language_model.h"
#include "tasks/run/decode/decode_program.h"
#include "tasks/run/session/model_state.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/tiny_run.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kVocab = 40, kSteps = 6;
constexpr int32_t kStart = 3;

struct Form {
  bool encoder, relative, repeated;
};

TransformerLm::HParams lm_of(const Form& form) {
  DotProductAttention::HParams attention{.num_kv_heads = 2};
  const auto biased = [&](bool bidirectional, const char* id) {
    if (!form.relative) return Template<BasePositionBias>(AlibiBias::HParams{});
    return Template<BasePositionBias>(RelativePositionBias::HParams{.num_buckets = 8,
                                                                    .max_distance = 6,
                                                                    .bidirectional = bidirectional,
                                                                    .layer = {.shared_id = id}});
  };
  attention.position_bias_tpl = biased(false, "bias");
  TransformerBlock::HParams block{.attention_tpl = attention};
  const auto stacked = [&](const TransformerBlock::HParams& each) -> Template<SequenceLayer> {
    if (form.repeated) return Repeated::HParams{.block_tpl = each};
    return StackedTransformer::HParams{.block_tpl = each};
  };
  TransformerLm::HParams lm{.vocab_size = kVocab,
                            .model_dims = 24,
                            .num_layers = 2,
                            .num_heads = 6,
                            .hidden_dims = 32,
                            .params_init = WeightInit{InitKind::kGaussian, 0.3}};
  if (form.encoder) {
    attention.causal = false;
    attention.position_bias_tpl = biased(true, "encoder_bias");
    lm.encoder_tpl = TransformerEncoder::HParams{
        .stacked_transformer_tpl = stacked({.attention_tpl = attention}),
        .decoder_start_id = kStart};
    block.cross_attention_tpl =
        DotProductAttention::HParams{.num_kv_heads = 3, .causal = false, .cross = true};
  }
  lm.stacked_transformer_tpl = stacked(block);
  return lm;
}

ExperimentConfig config_of(const Form& form) {
  ExperimentConfig config = tiny_config(1);
  config.task.as<SingleTask::HParams>().model = LanguageModel::HParams{.lm_tpl = lm_of(form)};
  return config;
}

// The sum of the log-probabilities of the last `ids.size() - 1 - before` ids.
double log_probability(const BaseTask& task, const Ids& encoder_ids, const Ids& ids,
                       size_t before) {
  Batch batch;
  ReferenceInputs inputs;
  const auto add = [&](const char* name, const char* axis, const Ids& values) {
    batch[name] =
        HostArray{DType::kI32, {"batch", axis}, {1, static_cast<int64_t>(values.size())}, {}};
    inputs[fmt::format("batch/{}", name)] = std::vector<double>(values.begin(), values.end());
  };
  add("ids", "seq", {ids.begin(), ids.end() - 1});
  if (!encoder_ids.empty()) add("encoder_ids", "encoder_seq", encoder_ids);
  for (const Parameter& each : task.model().parameters().parameters())
    inputs[each.path] = initial_values(each, 5);
  const Graph graph = task.logits_graph({Mesh(), {}, batch}, Weights::kTrained);
  const std::vector<double> logits = evaluate(graph, inputs).at("logits").values;
  double sum = 0.0;
  for (size_t i = before; i + 1 < ids.size(); ++i) {
    const double* const row = logits.data() + i * kVocab;
    double total = 0.0;
    for (int64_t j = 0; j < kVocab; ++j) total += std::exp(row[j]);
    sum += row[ids[i + 1]] - std::log(total);
  }
  return sum;
}

std::vector<Ids> some_prompts() {
  std::vector<Ids> prompts;
  for (int32_t i = 0; i < 5; ++i) {
    Ids prompt;
    for (int32_t j = 0; j <= i * 7 % 11; ++j) prompt.push_back((i * 13 + j * j * 5 + 2) % kVocab);
    prompts.push_back(prompt);
  }
  return prompts;
}

TEST_CASE("decoding with an encoder or biases of positions scores as the whole forward pass does") {
  const Form form = GENERATE(values<Form>({{false, false, false},
                                           {false, true, true},
                                           {true, false, true},
                                           {true, true, false},
                                           {true, true, true}}));
  const DecodeStrategy strategy = GENERATE(DecodeStrategy::kGreedy, DecodeStrategy::kBeam);
  CAPTURE(form.encoder, form.relative, form.repeated, enum_name(strategy));
  DecodeHParams p;
  p.strategy = strategy;
  p.beam_size = p.num_samples = strategy == DecodeStrategy::kBeam ? 3 : 1;
  p.max_decode_steps = kSteps;
  p.prefill_chunk = 4;
  p.batch = 6;  // Fewer rows than beams of all prompts.
  const std::vector<Ids> prompts = some_prompts();
  const TinyDevices devices;
  ProcessGroup alone;
  ModelSession session(config_of(form), ModelSession::Purpose::kRunning, devices.in_order(), 1,
                       alone);
  Decoding decoding(session, p, std::ssize(prompts), 11);
  session.executor().allocate();
  initialise_state(session.executor(), session.task().model().parameters(), 5, 1);
  const PromptText text(nullptr, kVocab);
  decoding.begin(&text);
  std::vector<DecodedExample> examples;
  for (const Ids& ids : prompts) examples.push_back({.prompt_ids = ids});
  decoding.decode(&examples);
  for (size_t i = 0; i < prompts.size(); ++i) {
    REQUIRE(std::ssize(examples[i].samples) == p.num_samples);
    for (const DecodedSample& sample : examples[i].samples) {
      Ids ids = form.encoder ? Ids{kStart} : prompts[i];
      const size_t before = ids.size() - 1;
      ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
      const double expected =
          log_probability(session.task(), form.encoder ? prompts[i] : Ids{}, ids, before);
      CAPTURE(i, sample.ids);
      REQUIRE(std::abs(sample.log_probability - expected) < 1e-4);
    }
  }
}

TEST_CASE("the window of decoding is refused with an encoder, whose prompt has no older half") {
  const TinyDevices devices;
  ProcessGroup alone;
  ModelSession session(config_of({true, true, true}), ModelSession::Purpose::kRunning,
                       devices.in_order(), 1, alone);
  DecodeHParams p;
  p.window = 4;
  REQUIRE_THROWS_WITH(Decoding(session, p, 1, 4),
                      Catch::Contains("task.decode.window") && Catch::Contains("encoder"));
}

}  // namespace
}  // namespace tessera
