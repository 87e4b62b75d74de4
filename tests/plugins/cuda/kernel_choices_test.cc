// SPDX-License-Identifier: Apache-2.0
// Tests whole runs with the stand-in for cuBLASLt, which returns another algorithm in each process
// or at each start, as if it were the fastest. No cache can be written, like in a container.
#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>

#include "plugins/cuda/device/choices.h"
#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/plugins/cuda/test_cublaslt.h"
#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/skip.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;

std::string steps(int count) {
  return fmt::format("--device=cuda --set num_train_steps={} ", count);
}

const std::string kFile = "kernel_choices.txt";

std::map<std::string, std::string> environment_of(const std::string& offered) {
  return {{"TESSERA_CUBLASLT", kFakeLibrary},
          {"TESSERA_FAKE_CUBLASLT_OFFERS", offered},
          {"XDG_CACHE_HOME", "/dev/null/no_cache"}};
}

TEST_CASE("a resumed run has the bits of one without an interruption, whatever is faster now") {
  const TinyRun run;
  run.train("whole", steps(4), environment_of("0"));
  run.train("resumed", steps(2), environment_of("0"));
  const std::string chosen = read_bytes(run.folder() / "resumed" / kFile);
  REQUIRE_THAT(chosen, Contains(", cuBLASLt 13.1.0, f32->f32 m="));
  run.train("resumed", steps(4), environment_of("3"));
  REQUIRE(losses_of(run.folder() / "resumed") == losses_of(run.folder() / "whole"));
  REQUIRE(read_bytes(run.folder() / "resumed" / kFile) == chosen);
  run.train("other", steps(4), environment_of("3"));  // The two algorithms differ.
  REQUIRE(losses_of(run.folder() / "other") != losses_of(run.folder() / "whole"));
}

TEST_CASE("all processes use the algorithms that the first has chosen") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TinyRun run;
  const auto trained = [&](const std::string& name, const std::string& offered) {
    auto environment = environment_of(offered);
    environment.merge(collectives_environment("nccl"));
    environment["TMPDIR"] = run.folder();
    const Outcome outcome = run.run_in_processes(
        "-n 2", name, steps(4) + "--set ici_mesh_shape=[1,2,1] --set strategy=fsdp ", environment);
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return losses_of(run.folder() / name);
  };
  REQUIRE(trained("unequal", "0,3") == trained("equal", "0,0"));
  REQUIRE(read_bytes(run.folder() / "unequal" / kFile) ==
          read_bytes(run.folder() / "equal" / kFile));
}

TEST_CASE("choices of another GPU are made again with a note, and damaged ones are an error") {
  const TinyRun run;
  run.train("run", steps(1), environment_of("0"));
  const std::filesystem::path file = run.folder() / "run" / kFile;
  auto newer = environment_of("0");
  newer["TESSERA_FAKE_CUBLASLT_VERSION"] = "130200";
  const Outcome outcome = run.run("run", steps(2), newer);
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE_THAT(outcome.errors, Contains("note: this run chose its kernels for Virtual GPU, "
                                        "cuBLASLt 13.1.0; here is Virtual GPU, cuBLASLt 13.2.0"));
  REQUIRE_THAT(read_bytes(file), Contains("cuBLASLt 13.1.0") && Contains("cuBLASLt 13.2.0"));

  Choices foreign = parsed_choices(read_bytes(file));
  for (auto& [key, choice] : foreign) choice.assign(128, 'z');  // Not an algorithm.
  write_bytes(file, text_of(foreign));
  const Outcome chosen = run.run("run", steps(3), environment_of("0"));
  INFO(chosen.errors);
  REQUIRE(chosen.exit_code == 0);
  REQUIRE_THAT(chosen.errors, Contains("the library refuses them, so they are chosen again"));

  std::string damaged = read_bytes(file);
  damaged[damaged.size() / 2] ^= 1;
  write_bytes(file, damaged);
  const Outcome refused = run.run("run", steps(4), environment_of("0"));
  REQUIRE(refused.exit_code == 2);
  REQUIRE_THAT(
      refused.errors,
      Contains("run/kernel_choices.txt: its checksum is wrong; restore the file, or remove "
               "it: kernels are then chosen again, and numbers may differ by rounding"));
  REQUIRE(read_bytes(file) == damaged);
}

TEST_CASE("an evaluation computes with the choices of its run, and changes none") {
  const TinyRun run;
  run.train("run", steps(1), environment_of("0"));
  const std::string chosen = read_bytes(run.folder() / "run" / kFile);
  const auto scored = [&](const std::string& offered) {
    const Outcome outcome = run.run("run", "--mode=eval --device=cuda ", environment_of(offered));
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out.substr(outcome.out.find("\nvalidation"));
  };
  REQUIRE(scored("0") == scored("3"));
  REQUIRE(read_bytes(run.folder() / "run" / kFile) == chosen);
}

TEST_CASE("a run says that it need not be deterministic") {
  const TinyRun run;
  const auto begun = [&](const std::string& setting) {
    const Outcome outcome = run.run("run", "--device=cuda --dry_run " + setting);
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  };
  const auto said = Contains("\ntask.train.deterministic=false: numbers may differ");
  REQUIRE_THAT(begun(""), !said);
  REQUIRE_THAT(begun("--set task.train.deterministic=false"), said);
}

}  // namespace
}  // namespace tessera::cuda
