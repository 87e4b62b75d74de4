// SPDX-License-Identifier: Apache-2.0
// Tests training of a small model in two stages on two virtual GPUs: the numbers of the CPU, the
// same bits in any order of work, and steps that are replayed as graphs.
#include <map>
#include <string>

#include "plugins/cuda/device/graph.h"
#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

const TrialRules kRules{"pipeline", "layers -> stage", "batch -> (replica, data)"};

// Returns a GPT-2 of two layers, with its tied table on both stages.
SpmdCase two_stages(const Template<PipelineSchedule>& schedule) {
  return {.own_rules = kRules,
          .repeated = true,
          .microbatches = 3,
          .layers = 2,
          .stages = 2,
          .schedule = schedule,
          .clip_norm = 1.0,
          .steps = 3,
          .sizes = {.vocab = 32, .embed = 16, .heads = 2, .hidden = 24, .batch = 3, .seq = 8}};
}

struct GpuRun {
  SpmdRun numbers;
  int64_t graphs = 0;  // Number of launches, over both GPUs.
};

GpuRun run_on_gpus(const std::string& collectives, const SpmdCase& trial, uint64_t seed) {
  std::map<std::string, std::string> environment = collectives_environment(collectives);
  environment["TESSERA_VIRTUAL_GPUS"] = std::to_string(trial.mesh().num_devices());
  environment["TESSERA_VIRTUAL_GPU_SEED"] = std::to_string(seed);
  environment["TESSERA_TEST_DEVICE"] = "cuda";
  const virtual_gpu::TestGpus gpus(environment);
  GpuRun run{.numbers = run_spmd(trial)};
  run.graphs = tessera_virtual_gpu_graph_launches();
  return run;
}

void require_close(const SpmdRun& got, const SpmdRun& expected) {
  const SpmdDifference apart = difference(got, expected);
  INFO(apart.worst);
  REQUIRE(apart.same_weights);
  REQUIRE(apart.loss < 1e-5);
  REQUIRE(apart.norm < 1e-4);
  REQUIRE(apart.gradient < 1e-3);
  REQUIRE(apart.curve < 1e-4);
}

TEST_CASE("two GPUs as stages have the CPU's numbers, the same bits twice, and steps as graphs") {
  const Template<PipelineSchedule> schedule =
      GENERATE(Template<PipelineSchedule>(OneForwardOneBackward::HParams{}),
               Template<PipelineSchedule>(ZeroBubbleH1::HParams{}));
  const ScopedVariable graphs(kGraphVariable, "on");  // Both GPUs are in one process.
  const SpmdCase trial = two_stages(schedule);
  INFO(trial.text());
  const GpuRun first = run_on_gpus("nccl", trial, 1), second = run_on_gpus("nccl", trial, 2);
  require_close(first.numbers, run_spmd(trial.on_one_device()));
  REQUIRE(second.numbers.losses == first.numbers.losses);
  REQUIRE(same_bits(second.numbers.trained, first.numbers.trained));
  // The first step of each GPU has no graph.
  REQUIRE(first.graphs == 2 * (trial.steps - 1));
  REQUIRE(second.graphs == first.graphs);
}

TEST_CASE("stages that send through each other's memory have the CPU's numbers") {
  const SpmdCase trial = two_stages(OneForwardOneBackward::HParams{});
  require_close(run_on_gpus("peer", trial, 3).numbers, run_spmd(trial.on_one_device()));
}

}  // namespace
}  // namespace tessera::cuda
