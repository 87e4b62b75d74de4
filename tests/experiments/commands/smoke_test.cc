// SPDX-License-Identifier: Apache-2.0
// runexp --smoke from the command line: the devices it takes, its directory, and that the run's
// configuration rebuilds it. tests/experiments/recipes_test.cc trains every recipe with it.
#include <chrono>
#include <filesystem>
#include <string>

#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

Outcome runexp(const TemporaryDirectory& folder, const std::string& arguments) {
  return shell(folder.path(), "'" + std::string(TESSERA_BINARY_DIR) + "/bin/runexp' " + arguments,
               std::chrono::minutes(10));
}

TEST_CASE("--smoke runs on the devices of the small mesh, in a directory of its own") {
  const TemporaryDirectory folder;
  const Outcome trained = successful(runexp(folder, "--exp=c4.Spmd1B --smoke"));
  REQUIRE(trained.errors.empty());
  REQUIRE_THAT(trained.out, Catch::Contains("2 devices (mesh replica=1 data=2 mdl=1)"));
  const auto directory = folder / "runs/c4.Spmd1B.smoke";
  REQUIRE(values_of(directory, "loss").size() == 5);
  REQUIRE_FALSE(std::filesystem::exists(folder / "runs/c4.Spmd1B"));
  // Repeating the command continues the run; the run's file is its configuration.
  REQUIRE_THAT(runexp(folder, "--exp=c4.Spmd1B --smoke").out,
               Catch::Contains("is complete: 5 steps done"));
  const std::string compare = "--exp=c4.Spmd1B --smoke --diff=runs/c4.Spmd1B.smoke";
  REQUIRE(runexp(folder, compare).out ==
          "c4.Spmd1B and runs/c4.Spmd1B.smoke have the same configuration\n");
}

TEST_CASE("--set and --devices override what --smoke chooses") {
  const TemporaryDirectory folder;
  const std::string mesh = " --set ici_mesh_shape=[1,2,2] --set num_train_steps=2";
  const Outcome larger =
      successful(runexp(folder, "--exp=c4.Spmd1B --smoke --job_log_dir=a" + mesh));
  REQUIRE_THAT(larger.out, Catch::Contains("4 devices (mesh replica=1 data=2 mdl=2)"));
  REQUIRE(values_of(folder / "a", "loss").size() == 2);
  const Outcome wrong = with_code(2, runexp(folder, "--exp=c4.Spmd1B --smoke --devices=3"));
  REQUIRE_THAT(wrong.errors, Catch::Contains("devices"));
  // Without --smoke the recipe's mesh needs its number of devices.
  REQUIRE(runexp(folder, "--exp=c4.Spmd1B --set data=synthetic --dry_run").exit_code == 2);
}

TEST_CASE("--diff shows what --smoke changes") {
  const TemporaryDirectory folder;
  const Outcome changes = runexp(folder, "--exp=c4.Spmd1B --smoke --diff=c4.Spmd1B");
  REQUIRE_THAT(changes.out, Catch::Contains("task.model.lm_tpl.num_layers: 2 -> 13\n") &&
                                Catch::Contains("task.train.num_train_steps: 5 -> 10000000\n"));
}

}  // namespace
}  // namespace tessera
