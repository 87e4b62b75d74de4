// SPDX-License-Identifier: Apache-2.0
// Predictions of a step: times add up along the two streams, MFU counts the model's FLOPs, and the
// text and JSON name each launch.
#include "tasks/planner/prediction.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <boost/property_tree/json_parser.hpp>
#include <boost/property_tree/ptree.hpp>
#include <fmt/format.h>

#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/grouped_product.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/planner/plan.h"
#include "tasks/planner/prices/roofline.h"
#include "tasks/planner/text.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// A Llama with wide layers, on one device or fully sharded over a mesh.
ExperimentConfig wide_config(const MeshConfig& mesh, const std::string& remat_policy,
                             int64_t num_microbatches, int64_t num_layers) {
  const FeedForward::HParams ffn{.activation_tpl = SiLU::HParams{}, .use_gated_activation = true};
  const TransformerLm::HParams lm{.vocab_size = 8192,
                                  .model_dims = 1024,
                                  .num_layers = num_layers,
                                  .num_heads = 8,
                                  .hidden_dims = 2816,
                                  .stacked_transformer_tpl = StackedTransformer::HParams{
                                      .block_tpl = TransformerBlock::HParams{.ffn_tpl = ffn}}};
  return {.mesh = mesh,
          .rules = strategy_rules(Strategy::kFullySharded),
          .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = DType::kBF16},
                                      .model = LanguageModel::HParams{.lm_tpl = lm},
                                      .train = {.num_train_steps = 1,
                                                .num_microbatches = num_microbatches,
                                                .remat_policy = remat_policy,
                                                .save_interval_steps = 0,
                                                .eval_interval_steps = 0}},
          .input = SyntheticInput::HParams{.global_batch_size = 32, .seq_len = 1024}};
}

Plan plan_on(const std::string& gpu, const MeshConfig& mesh,
             const std::string& remat_policy = "save_everything", int64_t num_microbatches = 1,
             int64_t num_layers = 4) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Device> device = make_planned_device(hardware_named(gpu));
  ProcessGroup alone;
  Session session(wide_config(mesh, remat_policy, num_microbatches, num_layers),
                  {.run_directory = directory.path(), .allocates = false}, {device.get()}, alone);
  const CompiledStep step = session.compiled_step();
  Plan plan = make_plan(step);
  plan.prediction = predict(step, hardware_named(gpu));
  return plan;
}

const MeshConfig kOne{.ici_mesh_shape = {1, 1, 1}};
const MeshConfig kFour{.ici_mesh_shape = {1, 4, 1}};

TEST_CASE("a small step takes the sum of its launches") {
  Trial trial(Mesh(), {"bf16[\"row=8192 inner=8192\"]", "bf16[\"inner=8192 column=8192\"]",
                       "f32[\"x=1024 y=1024\"]"});
  output("y", einsum(trial.inputs()[0], trial.inputs()[1], over("inner")));
  output("z", exp(trial.inputs()[2]));
  const StepProgram step = plan_memory(fuse(lower(trial.graph(), Mesh())), KernelFacts{});
  Hardware hardware = hardware_named("h200");
  hardware.host.reset();
  const Prediction prediction =
      predict({.stages = {{.stage = 0, .plan = &step}}, .mesh = Mesh(), .tokens = 8192}, hardware);
  REQUIRE(prediction.launches.size() == 2);
  // One stream: exactly the sum.
  REQUIRE(prediction.step_seconds ==
          prediction.launches[0].cost.seconds + prediction.launches[1].cost.seconds);
  // 2 · 8192³ FLOPs at 790 TFLOP/s, 8 MiB at 3.909 TB/s, and two gaps of 1.2 µs.
  const double expected = 1391.8e-6 + 2.146e-6 + 2.4e-6;
  REQUIRE(prediction.step_seconds == Approx(expected).epsilon(1e-3));
  REQUIRE(prediction.tokens_per_second == Approx(8192 / expected).epsilon(1e-3));
  REQUIRE(prediction.mfu == Approx(2.0 * 8192 * 8192 * 8192 / 989.4e12 / expected).epsilon(1e-3));
}

TEST_CASE("MFU counts the model's FLOPs, and no recomputation") {
  for (const std::string policy : {"save_everything", "save_nothing"})
    for (const MeshConfig& mesh : {kOne, kFour}) {
      const Plan plan = plan_on("h200", mesh, policy);
      const Prediction& prediction = *plan.prediction;
      double flops = 0.0;
      for (const PricedLaunch& launch : prediction.launches)
        flops += launch.model_flops * static_cast<double>(launch.count);
      const double devices = static_cast<double>(plan.devices);
      REQUIRE(flops == Approx(plan.flops_per_step / devices).epsilon(1e-6));
      REQUIRE(prediction.mfu == Approx(flops / hardware_named("h200").peak_flops(DType::kBF16) /
                                       prediction.step_seconds));
      REQUIRE(prediction.mfu > 0.2);
      REQUIRE(prediction.mfu < 0.8);
      REQUIRE(prediction.tokens_per_second == Approx(32 * 1024 / prediction.step_seconds));
    }
  REQUIRE(plan_on("h200", kOne, "save_nothing").prediction->step_seconds >
          1.1 * plan_on("h200", kOne).prediction->step_seconds);
}

int64_t temporaries(const Plan& plan) {
  const auto found = std::ranges::find(plan.memory, "temporaries", &NamedBytes::name);
  REQUIRE(found != plan.memory.end());
  return found->bytes;
}

TEST_CASE("with microbatches, a layer more needs memory for the sums of its gradients only") {
  const Plan four = plan_on("h200", kFour, "save_nothing", 4, 4);
  const Plan twelve = plan_on("h200", kFour, "save_nothing", 4, 12);
  // In f32, on each of four devices a quarter.
  const int64_t sums = twelve.parameters - four.parameters;
  REQUIRE(static_cast<double>(temporaries(twelve) - temporaries(four)) < 1.1 * sums);
}

// A product of `rows` rows, while an array is gathered that the next launch reads.
Prediction product_beside_gather(int64_t rows) {
  const Mesh mesh({{"data", 4, 1}});
  Trial trial(mesh, {fmt::format("bf16[\"row={} inner=8192\"]", rows),
                     "bf16[\"inner=8192 column=8192\"]", "f32[\"a/data=8192 b=4096\"]"});
  output("y", einsum(trial.inputs()[0], trial.inputs()[1], over("inner")));
  output("z", exp(reshard(trial.inputs()[2], "a b")));
  const StepProgram step =
      plan_memory(fuse(lower(trial.graph(), mesh)), KernelFacts{}, {}, Communication::kOverlapped);
  Hardware hardware = hardware_named("h200");
  hardware.host.reset();
  return predict({.stages = {{.stage = 0, .plan = &step}}, .mesh = mesh, .tokens = 1}, hardware);
}

TEST_CASE("a step waits for a collective only as long as it outlasts compute") {
  for (const int64_t rows : {1024, 8192}) {
    const Prediction prediction = product_beside_gather(rows);
    std::map<std::string, PricedLaunch> launches;
    for (const PricedLaunch& launch : prediction.launches) launches[launch.name] = launch;
    REQUIRE(launches.size() == 3);
    const double product = launches.at("einsum").cost.seconds;
    const double gather = launches.at("all_gather").cost.seconds;
    CAPTURE(rows, product, gather);
    REQUIRE(gather == Approx(272.1e-6 + 10e-6).epsilon(1e-3));  // 96 MiB at 370 GB/s.
    REQUIRE((product > gather) == (rows == 8192));
    REQUIRE(launches.at("all_gather").adds == Approx(std::max(0.0, gather - product)));
    REQUIRE(prediction.step_seconds ==
            Approx(std::max(product, gather) + launches.at("exp").cost.seconds));
  }
}

TEST_CASE("collectives run beside compute, and add what compute waits for") {
  const Prediction one = *plan_on("h200", kOne).prediction;
  const Prediction four = *plan_on("h200", kFour).prediction;
  double adds = 0.0, links = 0.0, waited = 0.0;
  for (const PricedLaunch& launch : four.launches) {
    const double all = static_cast<double>(launch.count) * launch.cost.seconds;
    const bool is_collective = launch.cost.limit == Limit::kLinks;
    if (!is_collective) REQUIRE(launch.adds == Approx(all));
    adds += launch.adds;
    if (!is_collective) continue;
    links += all;
    waited += launch.adds;
  }
  REQUIRE(adds + four.stages[0].input == Approx(four.step_seconds));
  REQUIRE(four.stages[0].exposed == Approx(waited));
  REQUIRE(four.exposed_share() == Approx(waited / four.step_seconds));
  REQUIRE(four.bubble_share() == 0.0);
  double by_line = 0.0;
  for (const ExposedLine& line : four.exposed) by_line += line.seconds;
  REQUIRE(by_line == Approx(waited));
  REQUIRE(links > 0.0);
  REQUIRE(waited < 0.8 * links);
  for (const PricedLaunch& launch : one.launches) REQUIRE(launch.cost.limit != Limit::kLinks);
}

TEST_CASE("a plan says what sums in the switch, among eight devices, and atomics would save") {
  for (const int64_t devices : {4, 8}) {
    const Plan plan = plan_on("h100", {.ici_mesh_shape = {devices, 1, 1}});
    double sums = 0.0, gradients = 0.0;
    for (const PricedLaunch& launch : plan.prediction->launches) {
      const auto count = static_cast<double>(launch.count);
      if (launch.name == "all_reduce")  // The share of their bytes, without latency.
        sums += count * (launch.cost.bytes / 370e9) * (1.0 - 1.0 / 1.297);
      if (launch.name == "attention_grad") gradients += count * launch.cost.determinism;
    }
    REQUIRE(sums > 0.0);
    const double saved = gradients + (devices == 8 ? sums : 0.0);
    const std::string said =
        fmt::format(" ms, up to {:.2f} less with task.train.deterministic=false\n", 1e3 * saved);
    CAPTURE(devices, sums, gradients);
    REQUIRE((prediction_text(*plan.prediction, devices, 0).find(said) != std::string::npos) ==
            (saved > 0.0));
  }
}

TEST_CASE("a GPU with more bandwidth is faster where memory is the limit") {
  const Prediction h100 = *plan_on("h100", kOne).prediction;
  const Prediction h200 = *plan_on("h200", kOne).prediction;
  REQUIRE(h100.launches.size() == h200.launches.size());
  bool faster = false;
  for (size_t i = 0; i < h100.launches.size(); ++i) {
    const LaunchCost &slow = h100.launches[i].cost, &fast = h200.launches[i].cost;
    if (slow.limit == Limit::kProducts) REQUIRE(fast.seconds <= slow.seconds);
    if (slow.limit != Limit::kMemory || slow.copies > 0.0) continue;
    // 1.2 µs are the gap.
    REQUIRE(fast.seconds - 1.2e-6 == Approx((slow.seconds - 1.2e-6) * 3.35 / 4.8));
    faster = true;
  }
  REQUIRE(faster);
}

TEST_CASE("optimizer and gradients are updated in place, without copies") {
  const Plan plan = plan_on("h200", kOne);
  REQUIRE_FALSE(plan.prediction->launches.empty());
  for (const PricedLaunch& launch : plan.prediction->launches) REQUIRE(launch.name != "copy");
}

TEST_CASE(
    "a planned GPU has the kernels of the CUDA device: of experts, and of 8 bits if it is new") {
  const std::unique_ptr<Device> gpu = make_planned_device(hardware_named("h200"));
  REQUIRE(gpu->has_kernel(kGroupedProductOp));
  REQUIRE(gpu->has_kernel(kGroupedOuterProductOp));
  REQUIRE(gpu->has_kernel(kFp8ProductOp));
  REQUIRE_FALSE(make_planned_device(hardware_named("a100"))->has_kernel(kFp8ProductOp));
  REQUIRE_FALSE(make_planned_device(hardware_named("tpu_v5p"))->has_kernel(kFp8ProductOp));
}

// The times of launches of a product and its epilogue, without those of the largest elements.
TEST_CASE(
    "products of 8 bits are priced by their own peak, and their operands' rounding by bytes") {
  const Hardware hardware = hardware_named("h200");
  const auto priced = [&](bool fp8) {
    Trial trial(Mesh(), {"bf16[\"row=8192 inner=8192\"]", "bf16[\"inner=8192 column=8192\"]",
                         "f32[\"row=8192 column=8192\"]"});
    const Tensor &x = trial.inputs()[0], &w = trial.inputs()[1];
    const Tensor y = fp8 ? fp8_product(x, w, over("inner")) : einsum(x, w, over("inner"));
    output("y", cast(y, DType::kF32) + trial.inputs()[2]);
    const StepProgram step =
        plan_memory(fuse(fuse_products(lower(trial.graph(), Mesh()))), KernelFacts{});
    const Prediction prediction = predict(
        {.stages = {{.stage = 0, .plan = &step}}, .mesh = Mesh(), .tokens = 8192}, hardware);
    const auto found = std::ranges::find_if(prediction.launches, [](const PricedLaunch& launch) {
      return launch.op == &kFusedProductOp;
    });
    REQUIRE(found != prediction.launches.end());
    return *found;
  };
  const PricedLaunch bf16 = priced(false), fp8 = priced(true);
  const double flops = 2.0 * 8192 * 8192 * 8192;
  REQUIRE(bf16.ideal == Approx(flops / hardware.peak_flops.bf16));
  REQUIRE(fp8.ideal == Approx(flops / *hardware.peak_flops.fp8));
  // Two launches of 3 bytes an element.
  const double rounding =
      2.0 * (3.0 * 8192 * 8192 / reachable_bandwidth(hardware) + hardware.launch_overhead);
  REQUIRE(fp8.cost.copies == Approx(rounding).epsilon(1e-6));
  const double product = fp8.cost.seconds - fp8.cost.copies - hardware.launch_overhead;
  const double of_bf16 = bf16.cost.seconds - bf16.cost.copies - hardware.launch_overhead;
  REQUIRE(product > of_bf16 * hardware.peak_flops.bf16 / *hardware.peak_flops.fp8);
  REQUIRE(product < 0.6 * of_bf16);
}

TEST_CASE("products, gated activations and residuals are launches with what is beside them") {
  const Plan plan = plan_on("h200", kOne, "save_everything", 2);
  std::map<std::string, int> times;  // In the layers.
  for (const PricedLaunch& launch : plan.prediction->launches) {
    CAPTURE(launch.name, launch.path);
    REQUIRE(launch.name != "copy");
    // The sums of the gradients of norms alone: 1024 numbers each.
    if (launch.name == "add") REQUIRE(launch.cost.bytes <= 3 * 4 * 1024);
    if (launch.path.find("x_layers") != std::string::npos)
      times[launch.name] += static_cast<int>(launch.count);
  }
  // In each of two microbatches four layers have seven matrices, a gate and two norms.
  REQUIRE(times["fused einsum cast add"] == 2 * 4 * 7);
  REQUIRE(times["fused silu mul"] == 2 * 4);
  REQUIRE(times["fused layer_norm_grad add"] == 2 * 4 * 2);
}

TEST_CASE("the text of a prediction names the heaviest launches, and fits 100 columns") {
  const Plan plan = plan_on("h200", kFour);
  const std::string text = plan_text(plan);
  CAPTURE(text);
  std::istringstream lines(text.substr(text.find("predicted for")));
  double share = 0.0;
  size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.size() <= 100);
    std::istringstream words(line);
    double milliseconds = 0.0, percent = 0.0;
    if (rows < 24 && words >> milliseconds >> percent) {
      share += percent;
      ++rows;
    }
  }
  REQUIRE(rows == 24);
  REQUIRE(share > 80.0);
  for (const std::string words :
       {"predicted for 4 x NVIDIA H200 SXM, not measured", "790 TFLOP/s of 989",
        "..x_layers[].attention", "attention_grad", "matrix products", "collectives", "  step\n",
        "in the way of a higher MFU", "tokens per second", "per device", "MFU   ",
        "(causal half of attention, peak 989 TFLOP/s in bf16)",
        "of 130 GiB, without scratch memory of kernels\n", "beside 1.50 GiB for the driver"})
    REQUIRE_THAT(text, Catch::Contains(words));
  REQUIRE_THAT(text, !Catch::Contains("it does not fit"));
}

TEST_CASE("the text names the peak of the dtype that MFU is measured against") {
  Trial trial(Mesh(), {"f32[\"row=512 inner=512\"]", "f32[\"inner=512 column=512\"]"});
  output("y", einsum(trial.inputs()[0], trial.inputs()[1], over("inner")));
  const StepProgram step = plan_memory(lower(trial.graph(), Mesh()), KernelFacts{}, {});
  const Prediction prediction =
      predict({.stages = {{.stage = 0, .plan = &step}}, .mesh = Mesh(), .tokens = 1},
              hardware_named("h200"));
  REQUIRE(prediction.mfu > 0.0);
  REQUIRE_THAT(prediction_text(prediction, 1, 0), Catch::Contains("peak 62 TFLOP/s in f32)"));
}

TEST_CASE("a prediction says that a file is not calibrated, and what a billion tokens cost") {
  Plan gpu = plan_on("h200", kOne);
  REQUIRE_THAT(plan_text(gpu), !Catch::Contains("calibrated") && Catch::Contains("cost  "));
  gpu.prediction->hardware.price_per_hour.reset();
  REQUIRE_THAT(plan_text(gpu), !Catch::Contains("cost"));
  Plan tpu = plan_on("tpu_v5p", kFour);
  REQUIRE_THAT(plan_text(tpu),
               Catch::Contains("predicted for 4 x Google TPU v5p, not measured") &&
                   Catch::Contains("366 TFLOP/s of 459") &&
                   Catch::Contains("not calibrated: launches and attention as on a GPU") &&
                   Catch::Contains("of 95.0 GiB"));
  Prediction& prediction = *tpu.prediction;
  prediction.hardware.price_per_hour = 3.0;
  prediction.tokens_per_second = 1e6;
  prediction.step_seconds = 3600.0;
  prediction.num_train_steps = 48;
  // 1000 s of four devices at 3 an hour.
  REQUIRE_THAT(plan_text(tpu),
               Catch::Contains("cost               3.333 per billion tokens, 576 for the run, "
                               "at 3 per device and hour\n") &&
                   Catch::Contains(": 2 days, 192 device-hours\n"));
  REQUIRE_THAT(plan_json(tpu), Catch::Contains("\"price_per_hour\": 3"));
  prediction.hardware = hardware_named("h200");
  prediction.hardware.tiles.reset();
  REQUIRE_THAT(plan_text(tpu), Catch::Contains("(the file has no [tiles] or [products])"));
}

TEST_CASE("a path is shortened to any width") {
  REQUIRE(ending("lm.ffn", 6) == "lm.ffn");
  REQUIRE(ending("lm.ffn", 5) == "..ffn");
  for (const size_t width : {0, 1, 2}) REQUIRE(ending("lm.ffn", width) == "..");
}

TEST_CASE("plan.json has every launch of a prediction") {
  const Plan plan = plan_on("h200", kOne);
  std::istringstream stream(plan_json(plan));
  boost::property_tree::ptree json;
  boost::property_tree::read_json(stream, json);
  const auto& prediction = json.get_child("prediction");
  REQUIRE(prediction.get<std::string>("hardware") == "h200");
  REQUIRE(prediction.get<double>("step_seconds") == Approx(plan.prediction->step_seconds));
  REQUIRE(prediction.get<double>("mfu") == Approx(plan.prediction->mfu));
  double seconds = 0.0;
  std::set<std::string> limits;
  for (const auto& [unused, launch] : prediction.get_child("launches")) {
    std::set<std::string> members;
    for (const auto& [name, value] : launch) members.insert(name);
    const bool is_attention = launch.get<std::string>("op").starts_with("attention");
    REQUIRE(members.erase("kernels") == (is_attention ? 1 : 0));
    REQUIRE(members == std::set<std::string>{"op", "path", "source", "phase", "count", "seconds",
                                             "adds_seconds", "limit", "flops", "model_flops",
                                             "bytes"});
    seconds += launch.get<double>("adds_seconds");
    limits.insert(launch.get<std::string>("limit"));
  }
  REQUIRE(seconds + plan.prediction->stages[0].input == Approx(plan.prediction->step_seconds));
  REQUIRE(limits.contains("products"));
  REQUIRE(limits.contains("memory"));
}

}  // namespace
}  // namespace tessera
