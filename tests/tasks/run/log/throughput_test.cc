// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/throughput.h"

#include <algorithm>

#include "core/base/process.h"
#include "core/devices/reference/device.h"
#include "core/runtime/comm/process_group.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

// 8 rows of 16 tokens, model_dims 16, two heads of 8, hidden_dims 32, vocabulary of 24.
constexpr double kTokens = 8 * 16;
constexpr double kMatrices = 4 * 16 * 16 + 2 * 16 * 32 + 24 * 16;
// Causal attention computes half of the score matrix and half of its product with the values.
constexpr double kAttention = 2 * 8 * (8.0 * 2) * 16 * (16 + 1) / 2 * 2;

Graph train_graph(ExperimentConfig config, const std::string& remat_policy, DType compute) {
  task_of(config).train.remat_policy = remat_policy;
  task_of(config).dtypes = DTypePolicy{.compute = compute};
  const std::unique_ptr<BaseInput> input = config.input.instantiate();
  input->attach({});
  return config.task.instantiate()->train_graph(
      {make_mesh({}, 1), make_rules({}), input->specification()});
}

TEST_CASE("model FLOPs are six per weight and token, plus three times causal attention") {
  const auto flops = model_flops(train_graph(tiny_config(), "save_everything", DType::kF32));
  REQUIRE(flops.size() == 1);
  // The diagonal of the score matrix may count fully or half: 1/17 of attention.
  REQUIRE(flops.at(DType::kF32) ==
          Approx(6 * kMatrices * kTokens + 3 * kAttention).margin(3 * kAttention / 16));
}

TEST_CASE("recomputation does not count as model FLOPs") {
  REQUIRE(model_flops(train_graph(tiny_config(), "save_nothing", DType::kF32)) ==
          model_flops(train_graph(tiny_config(), "save_everything", DType::kF32)));
}

TEST_CASE("products of the optimizer do not count as model FLOPs") {
  const Graph adam = train_graph(tiny_config(), "save_nothing", DType::kF32);
  ExperimentConfig config = tiny_config();
  task_of(config).learner.optimizer_tpl = Muon::HParams{};
  const Graph muon = train_graph(config, "save_nothing", DType::kF32);
  REQUIRE(graph_flops(muon) > 1.1 * graph_flops(adam));
  REQUIRE(model_flops(muon) == model_flops(adam));
}

TEST_CASE("a repeated stack counts each of its layers") {
  const auto flops_of = [](bool repeated) {
    ExperimentConfig config = tiny_config();
    TransformerLm::HParams& lm =
        task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
    lm.num_layers = 3;
    if (repeated) lm.stacked_transformer_tpl = Repeated::HParams{};
    return model_flops(train_graph(config, "save_nothing", DType::kF32)).at(DType::kF32);
  };
  REQUIRE(flops_of(true) == Approx(flops_of(false)));
}

TEST_CASE("devices that share processors count only up to the number of processors") {
  const ProcessGroup alone;
  const auto at_once = [&](int64_t devices, int threads) {
    RunSetting options;
    options.devices = devices;
    options.threads = threads;
    return devices_at_once(options, alone);
  };
  const int64_t processors = usable_processors();
  REQUIRE(at_once(1, 0) == 1);
  REQUIRE(at_once(1, 2 * usable_processors()) == 1);
  REQUIRE(at_once(64, 0) == std::min<int64_t>(64, processors));
  // With one thread each.
  REQUIRE(at_once(64, 1) == std::min<int64_t>(64, processors));
}

TEST_CASE("matrix products are counted by their dtype") {
  const auto flops = model_flops(train_graph(tiny_config(), "save_everything", DType::kBF16));
  REQUIRE(flops.at(DType::kBF16) > 0.99 * 6 * (kMatrices - 24 * 16) * kTokens);
}

TEST_CASE("MFU is the step time at peak FLOP/s divided by the actual step time") {
  const std::unique_ptr<Device> device = make_reference_device();
  const double peak = device->peak_flops(DType::kF32);
  Throughput throughput(100, {{DType::kF32, 3.0 * peak}}, *device, 2);
  throughput.add_step(6.0);
  REQUIRE(throughput.mfu() == Approx(0.25));
  REQUIRE(throughput.tokens_per_second() == Approx(100.0 / 6.0));
  REQUIRE(throughput.step_seconds() == 6.0);
  throughput.add_step(16.0);
  REQUIRE(throughput.tokens_per_second() == Approx(100.0 / 16.0));
  REQUIRE(throughput.smooth_tokens_per_second() == Approx(100.0 / 7.0));
  REQUIRE(throughput.seconds_for(10) == Approx(70.0));
  REQUIRE(Throughput(100, {}, *device, 1).mfu() < 0.0);
}

}  // namespace
}  // namespace tessera
