// SPDX-License-Identifier: Apache-2.0
// Faults that a fuzz of Megatron-LM by run-time sharding types found in composed parallelism, each
// as a composition that would show it here: its numbers are those of one device, and the fault
// would move them. Muon does not exist here: statistics of whole tensors (Adam's cap, Adafactor)
// stand for it.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/io/file.h"
#include "tests/composition/runs.h"
#include "tests/composition/trial.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train_trial.h"

namespace tessera {
namespace {

// REQUIREs one device's numbers in f64, and returns them.
RunNumbers require_same(const std::string& text) {
  const Composition composition = parse_composition(text);
  const auto numbers_on = [&](Place place) {
    return run_steps(traced(model_of(composition, place)), Numerics::kF64);
  };
  RunNumbers one = numbers_on(Place::kOneDevice);
  const Difference apart = difference(numbers_on(Place::kMesh), one);
  INFO(composition.text() << "\n" << apart.name);
  REQUIRE(apart.error <= kF64Tolerance);
  return one;
}

// Whether the path of a weight has one of these parts.
using Parts = std::vector<std::string>;
bool has_one(const std::string& path, const Parts& parts) {
  return std::ranges::any_of(
      parts, [&](const std::string& part) { return path.find(part) != std::string::npos; });
}

// A fault that changes a norm by more than this is far above rounding errors in f64.
constexpr double kVisible = 1e-4;

// The first step's gradient norm if the squares of gradients of some weights counted this often,
// divided by the correct one.
double faulty_norm(const RunNumbers& numbers, const Parts& parts, double times) {
  const std::string prefix = "step 0: gradient_norm/";
  double correct = 0.0, faulty = 0.0;
  for (const auto& [name, values] : numbers) {
    if (!name.starts_with(prefix)) continue;
    const double square = values.front() * values.front();
    correct += square;
    faulty += square * (has_one(name, parts) ? times : 1.0);
  }
  REQUIRE(std::sqrt(correct) == Approx(numbers.at("step 0: grad_norm").front()).epsilon(1e-12));
  return std::sqrt(faulty / correct);
}

TEST_CASE("finding: weights of heads count once in the clip norm under tensor parallelism") {
  for (const char* const mesh : {"tensor:4", "sequence:2,fsdp:2", "context:2,tensor:2"}) {
    const RunNumbers numbers = require_same(
        std::string("seed=3 layers=1 features=gqa,qk_norm,sinks,per_dim_scale,biases,clip "
                    "mesh=") +
        mesh);
    REQUIRE(
        numbers.contains("step 0: gradient_norm/lm.transformer.x_layers[0].attention.query_norm"
                         ".scale"));
    for (const Parts& parts : {Parts{"query_norm", "key_norm"}, Parts{"sinks"}, Parts{"_bias"}}) {
      REQUIRE(faulty_norm(numbers, parts, 0.0) < 1.0 - kVisible);
      REQUIRE(faulty_norm(numbers, parts, 2.0) > 1.0 + kVisible);
    }
  }
}

TEST_CASE("finding: replicated weights count once in the norm, not once for each device") {
  for (const char* const mesh : {"tensor:4", "experts:2,tensor:2", "replica:2,ring:2"}) {
    const RunNumbers numbers = require_same(
        std::string("seed=3 layers=1 features=mla,experts,shared_experts,clip mesh=") + mesh);
    // Under tensor parallelism of models such as DeepSeek's.
    const Parts replicated = {"_norm", "final_ln", "router", "kv_down", "q_down", "key_rope"};
    REQUIRE(faulty_norm(numbers, replicated, 4.0) > 1.2);
  }
}

TEST_CASE("finding: gradients of experts do not double with two devices of experts") {
  for (const char* const mesh : {"experts:2", "experts:2,fsdp:2", "experts:2,tensor:2"})
    for (const char* const router : {"experts,aux_losses", "capacity", "expert_choice"}) {
      const RunNumbers numbers =
          require_same(std::string("seed=2 layers=1 features=shared_experts,untied,clip,") +
                       router + " mesh=" + mesh);
      REQUIRE(faulty_norm(numbers, {".ffn.up", ".ffn.gate", ".ffn.down"}, 4.0) > 1.0 + kVisible);
    }
}

// Found here: the stages but one of a pipeline lacked it.
TEST_CASE("finding: a weight that all layers share is updated by every stage that reads it") {
  for (const char* const stages : {"2:gpipe", "4:zero_bubble"}) {
    const RunNumbers numbers = require_same(
        std::string("seed=1 layers=4 features=position_bias,repeated,clip mesh=fsdp:2 stages=") +
        stages);
    REQUIRE(numbers.contains("step 1: shared.bias.w"));
  }
}

// The sums of the weights of a batch's labels, for each of equal parts of the sequence.
std::vector<double> weights_of_parts(const std::string& text, int64_t parts) {
  const CompositionModel model = model_of(parse_composition(text), Place::kOneDevice);
  const Batch batch = model.batch(0);
  const int64_t seq = model.parts.sizes.seq;
  std::vector<double> sums(static_cast<size_t>(parts), 0.0);
  for (int64_t i = 0; i < model.parts.sizes.batch * seq; ++i)
    sums[static_cast<size_t>(i % seq * parts / seq)] += batch.at("weights").data<float>()[i];
  return sums;
}

TEST_CASE("finding: context parallelism weighs tokens, not the parts of a sequence") {
  for (const char* const mesh : {"ring:2", "context:2", "fsdp_ring:2,ring:2", "ring:2,tensor:2"})
    for (const char* const masks : {"padding", "packing,padding,token_weights,microbatches"}) {
      const std::string text =
          std::string("seed=4 layers=1 features=clip,") + masks + " mesh=" + mesh;
      require_same(text);
      // A mean over the parts of means over their tokens would be another loss.
      const std::vector<double> sums = weights_of_parts(text, 2);
      REQUIRE(std::abs(sums[0] - sums[1]) > 0.1 * (sums[0] + sums[1]));
    }
}

TEST_CASE("finding: gradients of norms are equal on all devices with sequence parallelism") {
  for (const char* const mesh : {"sequence:2", "sequence:4", "sequence:2,fsdp:2"}) {
    const RunNumbers numbers =
        require_same(std::string("seed=5 layers=1 features=qk_norm,layer_norm,clip mesh=") + mesh);
    // Each device has the gradient of its part of the sequence until they are added.
    REQUIRE(faulty_norm(numbers, {"_norm.", "final_ln."}, 0.25) < 0.98);
  }
}

TEST_CASE("a weight that differs between the devices that hold it is named") {
  const TracedStep step =
      traced(model_of(parse_composition("seed=5 layers=1 mesh=sequence:2"), Place::kMesh));
  TrainTrial trial(*step.task, step.graph, {.mesh = step.mesh});
  trial.step(step.model.batch(0), 0);
  REQUIRE(differing_copies(trial.executor()).empty());
  trial.executor().shards("lm.final_ln.scale")[1].memory.map(
      HostAccess::kWrite, [](std::span<std::byte> bytes) { bytes[0] ^= std::byte{1}; });
  REQUIRE(differing_copies(trial.executor()) == std::vector<std::string>{"lm.final_ln.scale"});
}

// The relative difference between the mean squares of the halves of the first of two layers.
double difference_of_halves(const std::vector<double>& gradient) {
  double squares[2] = {0.0, 0.0};
  for (size_t i = 0; i < gradient.size() / 2; ++i)
    squares[4 * i / gradient.size()] += gradient[i] * gradient[i];
  return std::abs(squares[0] - squares[1]) / (squares[0] + squares[1]);
}

TEST_CASE("finding: statistics of split and fused matrices are those of the whole matrix") {
  for (const char* const mesh : {"tensor:2", "fsdp:2,tensor:2"})
    for (const char* const heads : {"fused_qkv", "gqa"}) {
      const std::string features =
          std::string("seed=6 layers=2 features=repeated,clip_each,") + heads;
      require_same(features + ",adam mesh=" + mesh);
      const RunNumbers numbers = require_same(features + ",adafactor mesh=" + mesh);
      const std::string matrix = std::string(heads) == "gqa" ? "query" : "qkv";
      const std::vector<double>& gradient =
          numbers.at("step 0: learner/gradient/lm.transformer.x_layers[].attention." + matrix);
      REQUIRE(difference_of_halves(gradient) > kVisible);
    }
}

// Steps that change no weight.
TracedStep idle_step(const std::string& text) {
  CompositionModel model = model_of(parse_composition(text), Place::kMesh);
  model.task.learner.optimizer_tpl = AdamW::HParams{.learning_rate = 0.0};
  return traced(std::move(model));
}

TEST_CASE("finding: a step changes no mask of its batch") {
  const std::string masks = "seed=7 layers=2 features=repeated,packing,padding,token_weights";
  for (const std::string& text :
       {masks + " mesh=", masks + ",loss_chunks,save_nothing mesh=fsdp:2",
        masks + ",many_microbatches mesh=ring:2", masks + ",capacity mesh=experts:2",
        masks + ",microbatches mesh=replica:2 stages=2:1f1b"}) {
    INFO(text);
    const TracedStep step = idle_step(text);
    TrainTrial trial(*step.task, step.graph, {.mesh = step.mesh, .pipeline = step.pipeline});
    Batch batch = step.model.batch(0);
    const StepResult first = trial.step(batch, 0), second = trial.step(batch, 0);
    for (const auto& [name, array] : step.model.batch(0))
      REQUIRE(batch.at(name).bytes == array.bytes);
    REQUIRE(first.loss == second.loss);
    REQUIRE(first.metrics == second.metrics);
    REQUIRE(first.parameter_norms == second.parameter_norms);
    float& weight = *std::ranges::max_element(batch.at("weights").data<float>(),
                                              batch.at("weights").data<float>() + 16);
    weight = 0.0f;
    REQUIRE(trial.step(batch, 0).loss != first.loss);
  }
}

// How often the summaries for TensorBoard have a loss.
int64_t summarised_losses(const std::filesystem::path& directory) {
  int64_t losses = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "summaries/train")) {
    const std::string bytes = read_file(entry.path());
    for (size_t at = 0; (at = bytes.find("\x0a\x04loss", at)) != std::string::npos; ++at) ++losses;
  }
  return losses;
}

TEST_CASE("finding: the steps after a resume count once, with the numbers of a run without it") {
  const Composition composition = parse_composition(
      "seed=8 layers=1 features=capacity,aux_losses,dropout,microbatches,clip,ema "
      "mesh=experts:2,tensor:2");
  const TemporaryDirectory directory;
  train(composition, 6, directory / "whole");
  train(composition, 4, directory / "resumed");
  train(composition, 6, directory / "resumed");
  const std::vector<std::string> lines = lines_of_steps(directory / "resumed");
  REQUIRE(lines.size() == 6);
  REQUIRE(lines.front().find("parameter_norm/") != std::string::npos);
  REQUIRE(lines == lines_of_steps(directory / "whole"));
  REQUIRE(summarised_losses(directory / "resumed") == 6);
  REQUIRE(summarised_losses(directory / "whole") == 6);
}

}  // namespace
}  // namespace tessera
