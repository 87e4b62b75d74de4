// SPDX-License-Identifier: Apache-2.0
// Tests runs of runexp --device=cuda in several processes that mpirun starts, each with its own
// virtual GPUs, connected by the stand-in for NCCL.
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/skip.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;

const std::string kSix = "--device=cuda --set num_train_steps=6 ";

std::map<std::string, std::string> nccl_in(const TinyRun& run) {
  std::map<std::string, std::string> environment = collectives_environment("nccl");
  environment["TMPDIR"] = run.folder();
  return environment;
}

TEST_CASE("two processes with a GPU each train with the numbers of one") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TinyRun run;
  run.train("one", kSix);
  const Outcome outcome = run.run_in_processes(
      "-n 2", "two", kSix + "--set ici_mesh_shape=[1,2,1] --set strategy=fsdp ", nccl_in(run));
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  const std::vector<double> one = numbers_of(run.folder() / "one", "loss"),
                            two = numbers_of(run.folder() / "two", "loss");
  REQUIRE(one.size() == 6);
  REQUIRE(two.size() == 6);
  for (size_t i = 0; i < one.size(); ++i)
    REQUIRE(std::abs(one[i] - two[i]) <= 1e-5 * std::abs(one[i]));
}

TEST_CASE("a process whose GPU does not arrive ends the run, which names it") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TinyRun run;
  auto environment = nccl_in(run);
  environment["TESSERA_FAKE_NCCL_FAULT"] = "lost:40:r1";
  const Outcome outcome = run.run_in_processes(
      "-n 2", "lost",
      kSix + "--set ici_mesh_shape=[1,2,1] --set task.train.collective_timeout_seconds=10 ",
      environment);
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE_THAT(outcome.errors, Contains("has waited 10 s in collective ") &&
                                   Contains("process 1") && Contains("Positions of all devices: "));
}

TEST_CASE("two processes that are shown one GPU are refused before the first step") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TinyRun run;
  auto environment = nccl_in(run);
  environment["TESSERA_VIRTUAL_GPUS"] = "1";
  const Outcome outcome =
      run.run_in_processes("-n 2", "refused", kSix + "--set ici_mesh_shape=[1,2,1] ", environment);
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 2);
  REQUIRE_THAT(outcome.errors, Contains("runexp: --device=cuda: processes 0 and 1 of host ") &&
                                   Contains("use the same GPU, 0000:01:00.0"));
  REQUIRE_FALSE(std::filesystem::exists(run.folder() / "refused/metrics.jsonl"));
}

}  // namespace
}  // namespace tessera::cuda
