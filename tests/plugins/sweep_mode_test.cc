// SPDX-License-Identifier: Apache-2.0
// The flags of --mode=sweep, and the GPUs of trials that run at the same time.
#include "plugins/sweep_mode.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("trials that run at the same time have GPUs of their own") {
  REQUIRE(gpus_of_place(0, 2, "") == "0,1");
  REQUIRE(gpus_of_place(1, 2, "") == "2,3");
  REQUIRE(gpus_of_place(1, 1, "3,5") == "5");
  REQUIRE(error_of([] { gpus_of_place(1, 2, "3,5,6"); }) ==
          "CUDA_VISIBLE_DEVICES=3,5,6 has 3 GPUs, but the trials that run at the same time use 4 "
          "or more; give a lower --sweep_processes");
}

TEST_CASE("flags of a sweep are parsed, and refused in other modes and with those of one run") {
  const auto error = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "--exp=a.B");
    return error_of([&] { parse_command_line(flags); });
  };
  const CommandLine line = parse_command_line(
      {"--exp=a.B", "--mode=sweep", "--sweep=a=1,2", "--sweep=b=3", "--sweep_processes=4",
       "--sweep_trials=5", "--sweep_seed=6", "--sweep_goal=max", "--retry_failed"});
  REQUIRE(line.action == CommandLine::Action::kSweep);
  REQUIRE(line.sweep.space == std::vector<std::string>{"a=1,2", "b=3"});
  REQUIRE((line.sweep.processes == 4 && line.sweep.trials == 5 && line.sweep.seed == 6));
  REQUIRE((line.sweep.goal == SweepGoal::kMax && line.sweep.retries_failed));
  REQUIRE(error({"--sweep=a=1"}) == "--sweep needs --mode=sweep");
  REQUIRE(error({"--mode=eval", "--retry_failed"}) == "--retry_failed needs --mode=sweep");
  REQUIRE_THAT(error({"--mode=sweep", "--sweep_processes=0"}), Catch::Contains("1 or more"));
  REQUIRE_THAT(error({"--mode=sweep", "--sweep_goal=low"}), Catch::Contains("one of min, max"));
  REQUIRE_THAT(error({"--mode=sweep", "--checkpoint=3"}), Catch::Contains("--checkpoint"));
}

}  // namespace
}  // namespace tessera
