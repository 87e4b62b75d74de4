// SPDX-License-Identifier: Apache-2.0
// Tests training of a small model on several virtual GPUs with FSDP and tensor parallelism: it has
// the numbers of one GPU and of CPU devices.
#include <map>
#include <string>
#include <vector>

#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

// Returns the curve of a run on virtual GPUs.
SpmdRun run_on_gpus(const std::string& collectives, const SpmdCase& trial, uint64_t seed) {
  std::map<std::string, std::string> environment = collectives_environment(collectives);
  environment["TESSERA_VIRTUAL_GPUS"] = std::to_string(trial.mesh().num_devices());
  environment["TESSERA_VIRTUAL_GPU_SEED"] = std::to_string(seed);
  environment["TESSERA_TEST_DEVICE"] = "cuda";
  const virtual_gpu::TestGpus gpus(environment);
  return run_spmd(trial);
}

void require_close(const SpmdRun& got, const SpmdRun& expected) {
  const SpmdDifference it = difference(got, expected);
  INFO(it.worst);
  REQUIRE(it.same_weights);
  REQUIRE(it.loss < 1e-5);
  REQUIRE(it.norm < 1e-4);
  REQUIRE(it.gradient < 1e-3);
  REQUIRE(it.curve < 1e-4);
}

TEST_CASE("training on 2 and 4 GPUs has the numbers of one GPU and of the CPU") {
  const std::string how = GENERATE("peer", "nccl");
  INFO(how);
  SpmdCase trial{.strategy = "fsdp", .steps = 2};
  const SpmdRun on_cpu = run_spmd(trial.on_one_device());
  require_close(run_on_gpus(how, trial.on_one_device(), 1), on_cpu);
  for (const auto& [ici, strategy] : std::map<std::vector<int64_t>, std::string>{
           {{1, 2, 1}, "fsdp"}, {{1, 1, 2}, "tensor"}, {{1, 2, 2}, "fsdp and tensor"}}) {
    trial.ici = ici;
    trial.strategy = strategy;
    INFO(trial.text());
    require_close(run_on_gpus(how, trial, 2), on_cpu);
  }
}

TEST_CASE("a loss in chunks on 2 and 4 GPUs has the numbers of the whole loss") {
  for (const SpmdCase& trial : std::vector<SpmdCase>{
           {.ici = {1, 2, 1}, .strategy = "fsdp", .chunk_tokens = 24, .steps = 2},
           {.ici = {1, 2, 2}, .strategy = "fsdp and tensor", .chunk_tokens = 60, .steps = 2}}) {
    INFO(trial.text());
    require_close(run_on_gpus("peer", trial, 3), run_spmd(trial.on_one_device()));
  }
}

}  // namespace
}  // namespace tessera::cuda
