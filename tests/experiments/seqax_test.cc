// SPDX-License-Identifier: Apache-2.0
// seqax's model with explicit layouts, from the command line.
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

struct Outcome {
  int code = 0;
  std::string output;
};

Outcome run(const TemporaryDirectory& directory, const std::vector<std::string>& arguments) {
  Child child("runexp", arguments, directory / "output.txt");
  const int code = child.wait();
  return {code, child.output()};
}

// A few steps of few examples; `where` chooses the devices.
std::vector<std::string> losses(const TemporaryDirectory& directory, const std::string& name,
                                const std::vector<std::string>& where) {
  std::vector<std::string> arguments = {"--exp=seqax.LocalSynthetic",
                                        "--job_log_dir=" + (directory / name).string(),
                                        "--set",
                                        "num_train_steps=6",
                                        "--set",
                                        "global_batch_size=8",
                                        "--set",
                                        "learning_rate=0.01",
                                        "--set",
                                        "warmup_steps=2",
                                        "--set",
                                        "compute_dtype=f32",
                                        "--set",
                                        "task.train.eval_interval_steps=0",
                                        "--set",
                                        "task.train.save_interval_steps=6"};
  arguments.insert(arguments.end(), where.begin(), where.end());
  const Outcome got = run(directory, arguments);
  INFO(got.output);
  REQUIRE(got.code == 0);
  return values_of(directory / name, "loss");
}

TEST_CASE("seqax.LocalSynthetic is the 2.43M model on a mesh of four by two") {
  const TemporaryDirectory directory;
  const Outcome described = run(directory, {"--exp=seqax.LocalSynthetic", "--describe"});
  REQUIRE(described.code == 0);
  REQUIRE_THAT(described.output, Catch::Contains("mesh.ici_mesh_shape = [1, 4, 2]"));
  const Outcome plan = run(directory, {"--exp=seqax.LocalSynthetic", "--mode=plan"});
  INFO(plan.output);
  REQUIRE(plan.code == 0);
  REQUIRE_THAT(plan.output, Catch::Contains("2426112") && !Catch::Contains("warning"));
}

TEST_CASE("seqax's model learns on one device") {
  const TemporaryDirectory directory;
  const auto got = losses(directory, "one", {"--set", "ici_mesh_shape=[1,1,1]"});
  REQUIRE(got.size() == 6);
  REQUIRE(std::stod(got.front()) > 6.5);  // ln 1280 = 7.2, and half of the tokens are below 11.
  REQUIRE(std::stod(got.back()) < 0.75 * std::stod(got.front()));
}

TEST_CASE("seqax's model takes the same steps on its mesh of four by two") {
  const TemporaryDirectory directory;
  const auto one = losses(directory, "one", {"--set", "ici_mesh_shape=[1,1,1]"});
  const auto many = losses(directory, "many", {"--devices=8"});
  REQUIRE(many.size() == one.size());
  // Sums in another order: f32 rounding, amplified by a few steps at a high learning rate.
  for (size_t i = 0; i < one.size(); ++i)
    REQUIRE(std::stod(many[i]) == Approx(std::stod(one[i])).epsilon(1e-3));
}

}  // namespace
}  // namespace tessera
