// SPDX-License-Identifier: Apache-2.0
// Commands on a run that is not what they expect: another model, another code, another directory,
// file systems without locks.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/plugins/fixtures.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/compiler.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

Outcome run(const TemporaryDirectory& folder, const std::string& arguments,
            const std::string& environment = "") {
  return shell(folder.path(), fmt::format("env {} '{}/bin/runexp' {}", environment,
                                          TESSERA_BINARY_DIR, arguments));
}

TEST_CASE("commands with another model than the run's are refused, or say what differs") {
  const TextFolder folder;
  const std::string two = tiny_arguments(2) + " --set num_layers=2";
  REQUIRE(run(folder, two).exit_code == 0);
  for (const char* command :
       {"--allow_config_change", "--mode=eval", "--mode=decode --prompt=the"}) {
    INFO(command);
    const Outcome outcome = run(folder, fmt::format("{} {}", tiny_arguments(4), command));
    REQUIRE(outcome.exit_code != 0);
    REQUIRE_THAT(outcome.errors, Contains("the checkpoint of another model: it has") &&
                                     Contains("x_layers[1]") && Contains("--config"));
  }
  const std::string causal =
      " --set task.model.lm_tpl.stacked_transformer_tpl.block_tpl.attention_tpl.causal=false";
  const Outcome scored = successful(run(folder, two + " --mode=eval" + causal));
  REQUIRE_THAT(scored.out, Contains("note: step 2 was trained with another model: task.model.") &&
                               Contains("attention_tpl.causal: true -> false"));
  fs::rename(folder / "run", folder / "first");
  const Outcome taken =
      successful(run(folder, tiny_arguments(2) + " --set task.train.init_from.directory=first"));
  REQUIRE_THAT(taken.out, Contains("of its weights are left out: lm.transformer.x_layers[1]."));
}

TEST_CASE("classes of a given plugin are known whichever experiment is named") {
  const TextFolder folder;
  // Both register zoo.Cat, which is noticed only where both are loaded.
  const std::string both = fmt::format(" --plugin_path='{}' --plugin_path='{}'",
                                       fixture("good").string(), fixture("twin").string());
  REQUIRE(run(folder, tiny_arguments(1)).exit_code == 0);
  for (const std::string& command :
       {tiny_arguments(1) + " --describe" + both, "--config=run --describe" + both}) {
    INFO(command);
    const Outcome outcome = with_code(2, run(folder, command));
    REQUIRE_THAT(outcome.errors, Contains("experiment 'zoo.Cat' is registered twice"));
  }
  // A plugin that cannot be loaded is named where a class is missing.
  const Outcome unknown = with_code(
      2, run(folder, tiny_arguments(1) +
                         fmt::format(" --set task.learner.optimizer_tpl=Mine --plugin_path='{}'",
                                     fixture("stale").string())));
  REQUIRE_THAT(unknown.errors, Contains("named 'Mine'") && Contains("plugin of another build"));
}

TEST_CASE("a run says which code it is, and --mode=plan replaces only plans") {
  const TextFolder folder;
  REQUIRE(run(folder, tiny_arguments(1)).exit_code == 0);
  const std::string log = read_bytes(folder / "run/metrics.jsonl");
  REQUIRE_THAT(log, Contains("\"build\": \"0.") && Contains("\"plugins\": \"quickstart.so ") &&
                        Contains("\"revision\": \""));
  write_bytes(folder / "notes.txt", "mine");
  const Outcome plan =
      with_code(2, run(folder, tiny_arguments(1) + " --mode=plan --output=notes.txt"));
  REQUIRE_THAT(plan.errors, Contains("notes.txt exists and is not a plan of --mode=plan"));
  REQUIRE(read_bytes(folder / "notes.txt") == "mine");
}

TEST_CASE("a directory that is moved during a run ends it with 1 and the new path") {
  const TextFolder folder;
  Outcome outcome;
  std::jthread training([&] { outcome = run(folder, tiny_arguments(1000000)); });
  while (losses_of(folder / "run").size() < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  fs::rename(folder / "run", folder / "moved");
  fs::create_directory(folder / "run");
  training.join();
  REQUIRE(outcome.exit_code == 1);
  REQUIRE_THAT(outcome.errors, Contains("run was moved to " + (folder / "moved").string()) &&
                                   Contains("is saved there"));
  REQUIRE(fs::is_empty(folder / "run"));
}

TEST_CASE("runs go on where old checkpoints cannot be removed and where there is no flock") {
  if (kSanitized) return skip_test("a sanitizer must be the first library");
  const TextFolder folder;
  const std::string shim = (folder / "shim.so").string();
  REQUIRE(shell(folder.path(), fmt::format("{} -x c -shared -fPIC -o '{}' '{}/tests/support/"
                                           "odd_file_system.c'",
                                           compiler(), shim, TESSERA_SOURCE_DIR))
              .exit_code == 0);
  const auto odd = [&](int64_t steps, const std::string& how) {
    return run(folder,
               tiny_arguments(steps) +
                   " --set task.train.save_interval_steps=1 "
                   "--set task.train.save_max_to_keep=1 --allow_config_change",
               fmt::format("LD_PRELOAD='{}' {}", shim, how));
  };
  const auto left_over = [&] {
    return std::ranges::count_if(
        fs::directory_iterator(folder / "run/checkpoints"),
        [](auto& each) { return each.path().filename().string().starts_with(".step_"); });
  };
  const Outcome busy = successful(odd(4, "BUSY=step_"));
  REQUIRE_THAT(busy.out, Contains("warning: an old checkpoint cannot be removed (") &&
                             Contains("it is tried again after each save"));
  REQUIRE(left_over() > 0);
  successful(odd(6, "FLOCK_ERRNO=38"));
  REQUIRE(left_over() == 0);
}

}  // namespace
}  // namespace tessera
