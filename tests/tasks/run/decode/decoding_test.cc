// SPDX-License-Identifier: Apache-2.0
// Decoding by a model's cached graphs: the result for a prompt is bit-identical in any batch.
#include <chrono>

#include "core/base/error.h"
#include "core/base/random.h"
#include "inputs/token_row.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/models/classification_model.h"
#include "layers/models/language_model.h"
#include "tasks/run/decode/decode_program.h"
#include "tasks/run/session/model_state.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_run.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;
using Results = std::vector<std::vector<DecodedSample>>;

constexpr int64_t kVocab = 72;

// Wide enough that matrix products take the same code paths as in real models.
ExperimentConfig wide_config(DType compute = DType::kF32) {
  ExperimentConfig config = tiny_config(1, compute);
  config.task.as<SingleTask::HParams>().model = LanguageModel::HParams{
      .lm_tpl = TransformerLm::HParams{.vocab_size = kVocab,
                                       .model_dims = 96,
                                       .num_layers = 2,
                                       .num_heads = 4,
                                       .hidden_dims = 160,
                                       .params_init = WeightInit{InitKind::kGaussian, 0.2}}};
  return config;
}

Results samples_of(Decoding& decoding, const Prompts& prompts) {
  std::vector<DecodedExample> examples;
  for (const std::vector<int32_t>& ids : prompts) examples.push_back({.prompt_ids = ids});
  decoding.decode(&examples);
  Results results;
  for (const DecodedExample& example : examples) results.push_back(example.samples);
  return results;
}

Results decode(const ExperimentConfig& config, const DecodeHParams& p, const Prompts& prompts) {
  const TinyDevices devices;
  ProcessGroup alone;
  ModelSession session(config, ModelSession::Purpose::kRunning, devices.in_order(), 1, alone);
  int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, std::ssize(prompt));
  Decoding decoding(session, p, std::ssize(prompts), longest);
  session.executor().allocate();
  initialise_state(session.executor(), session.task().model().parameters(), 5, 1);
  const PromptText text(nullptr, kVocab);
  decoding.begin(&text);
  return samples_of(decoding, prompts);
}

Prompts wide_prompts(int64_t count) {
  Prompts prompts;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt;
    for (int64_t j = 0; j <= i * 7 % 23; ++j)
      prompt.push_back(static_cast<int32_t>(
          philox(3, static_cast<uint64_t>(i), static_cast<uint64_t>(j))[0] % kVocab));
    prompts.push_back(prompt);
  }
  return prompts;
}

void require_same_bits(const std::vector<DecodedSample>& a, const std::vector<DecodedSample>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].ids == b[i].ids);
    REQUIRE(a[i].log_probability == b[i].log_probability);
    REQUIRE(a[i].score == b[i].score);
  }
}

TEST_CASE("a prompt decodes to the same bits in any batch, order and cache size", "[levels]") {
  for (const DType compute : {DType::kF32, DType::kBF16})
    for (const DecodeStrategy strategy : {DecodeStrategy::kSample, DecodeStrategy::kBeam}) {
      INFO(dtype_name(compute) << " " << enum_name(strategy));
      const ExperimentConfig config = wide_config(compute);
      DecodeHParams p;
      p.strategy = strategy;
      p.temperature = 1.0;
      p.beam_size = 3;
      p.num_samples = 2;
      p.max_decode_steps = 9;
      p.prefill_chunk = 8;
      p.batch = 6;
      const Prompts prompts = wide_prompts(7);
      const Results expected = decode(config, p, prompts);
      REQUIRE(expected[0][0].ids != expected[0][1].ids);
      const Prompts backwards(prompts.rbegin(), prompts.rend());
      const Results reversed = decode(config, p, backwards);
      for (size_t i = 0; i < prompts.size(); ++i)
        require_same_bits(reversed[prompts.size() - 1 - i], expected[i]);
      for (const int64_t batch : {3, 4, 16}) {
        INFO("batch " << batch);
        DecodeHParams other = p;
        other.batch = batch;
        const Results results = decode(config, other, prompts);
        for (size_t i = 0; i < prompts.size(); ++i) require_same_bits(results[i], expected[i]);
      }
      for (const size_t i : {1u, 5u}) {
        INFO("prompt " << i << " alone");
        require_same_bits(decode(config, p, {prompts[i]}).front(), expected[i]);
        DecodeHParams longer = p;  // A larger cache than needed.
        longer.cache_length = 200;
        require_same_bits(decode(config, longer, {prompts[i]}).front(), expected[i]);
      }
    }
}

TEST_CASE("a session holds caches of different names and sizes at the same time") {
  const ExperimentConfig config = wide_config();
  const Prompts prompts = wide_prompts(4);
  DecodeHParams sample, beam;
  sample.max_decode_steps = 5;
  beam.strategy = DecodeStrategy::kBeam;
  beam.batch = 9;
  beam.beam_size = 3;
  beam.max_decode_steps = 7;

  const TinyDevices devices;
  ProcessGroup alone;
  ModelSession session(config, ModelSession::Purpose::kRunning, devices.in_order(), 1, alone);
  Decoding samples(session, sample, 4, 30, "samples"), beams(session, beam, 4, 23);
  session.executor().allocate();
  initialise_state(session.executor(), session.task().model().parameters(), 5, 1);
  const PromptText text(nullptr, kVocab);
  samples.begin(&text);
  beams.begin(&text);
  const Results first = samples_of(samples, prompts);
  const Results between = samples_of(beams, prompts);
  const Results again = samples_of(samples, prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    require_same_bits(again[i], first[i]);
    require_same_bits(first[i], decode(config, sample, prompts)[i]);
    require_same_bits(between[i], decode(config, beam, prompts)[i]);
  }
}

TEST_CASE("evaluation and decoding hold no weights of a teacher") {
  ExperimentConfig config = wide_config(DType::kBF16);
  auto& model = config.task.as<SingleTask::HParams>().model.as<LanguageModel::HParams>();
  model.teacher_tpl = model.lm_tpl;
  const TinyDevices devices;
  ProcessGroup alone;
  ModelSession session(config, ModelSession::Purpose::kRunning, devices.in_order(), 1, alone);
  const Decoding decoding(session, {}, 1, 1);
  TraceSetting setting{session.mesh(), session.rules(), token_batch_specification(2, 8)};
  const auto teachers = [&] {
    return std::ranges::count_if(session.executor().persistent(), [](const Buffer& buffer) {
      return buffer.name.find("teacher.") != std::string::npos;
    });
  };
  session.add_program(session.task().eval_graph(setting, Weights::kTrained));
  REQUIRE(session.executor().persistent().size() > 10);
  REQUIRE(teachers() == 0);
  session.add_program(session.task().train_graph(setting));
  REQUIRE(teachers() > 10);
}

TEST_CASE("decoding a model that is not a language model is an error") {
  ExperimentConfig config = tiny_config(1);
  config.task.as<SingleTask::HParams>().model = ClassificationModel::HParams{
      .network_tpl = Mlp::HParams{.input_dims = 4, .hidden_dims = {8}},
      .softmax_tpl = FullSoftmax::HParams{.vocab_size = 3, .model_dims = 8}};
  REQUIRE_THAT(error_of([&] { decode(config, {}, {{1}}); }), Catch::Contains("cannot decode"));
}

}  // namespace
}  // namespace tessera
