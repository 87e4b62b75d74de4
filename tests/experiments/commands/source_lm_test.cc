// SPDX-License-Identifier: Apache-2.0
// quickstart.SourceLm, the first experiment of most users: what it prints, and that it learns. The
// corpus is this repository, which changes with each commit, so bounds are loose: they catch wrong
// matrix products and gradients, not a worse model.
#include <algorithm>
#include <numeric>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Returns the output of SourceLm.
std::string output_of(const fs::path& directory, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"--exp=quickstart.SourceLm", "--job_log_dir=" + (directory / "run").string()});
  return successful(run_program(directory, "runexp", arguments)).output;
}

double mean_of_last(const std::vector<double>& values, size_t count) {
  REQUIRE(values.size() >= count);
  return std::accumulate(values.end() - static_cast<std::ptrdiff_t>(count), values.end(), 0.0) /
         static_cast<double>(count);
}

double largest_of_last(const std::vector<double>& values, size_t count) {
  REQUIRE(values.size() >= count);
  return *std::max_element(values.end() - static_cast<std::ptrdiff_t>(count), values.end());
}

TEST_CASE("SourceLm prints a table of its weights that fits 100 columns") {
  const TemporaryDirectory directory;
  const std::string output = output_of(directory.path(), {"--dry_run"});
  REQUIRE_THAT(output,
               Catch::Contains("\nlm.transformer.x_layers[0..3]  ") &&
                   Catch::Contains("\n  attention.query       f32[embed=128 heads=4 "
                                   "head_dim=32]      65.5k = 4 x 16.4k   gaussian 0.02\n"));
  std::istringstream lines(output);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    in_table = (in_table || line.starts_with("lm.")) && !line.empty();
    if (in_table) REQUIRE(line.size() <= 100);
  }
}

TEST_CASE(
    "a mesh axis that no rule of SourceLm names gives a warning, in the plan and at the start") {
  const std::string warning =
      "warning: mesh axis row=2 splits nothing (no rule names it): the 2 devices along it repeat "
      "the same work; name row in rules.weights (now \"\") or rules.activations (now \"batch -> "
      "(replica, data)\"), or set its size to 1\n";
  const std::vector<std::string> mesh = {"--set", "mesh.axis_names=[replica,data,mdl,row]", "--set",
                                         "ici_mesh_shape=[1,2,1,2]"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = mesh;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const TemporaryDirectory directory;
  REQUIRE_THAT(output_of(directory.path(), with({"--mode=plan"})), Catch::StartsWith(warning));
  REQUIRE_THAT(output_of(directory.path(), with({"--dry_run", "--devices=4"})),
               Catch::Contains(warning));
  REQUIRE_THAT(
      output_of(directory.path(), with({"--mode=plan", "--set", "rules.weights=mlp -> row", "--set",
                                        "rules.activations=batch -> data, mlp -> row"})),
      !Catch::Contains("warning"));
}

TEST_CASE("SourceLm is better than a unigram model after a hundred steps") {
  const TemporaryDirectory directory;
  output_of(directory.path(),
            {"--threads=2", "--set", "num_train_steps=100", "--set", "sample_length=0", "--set",
             "eval_inputs.validation.num_batches=16"});
  const std::vector<double> losses = numbers_of(directory / "run", "loss");
  REQUIRE(losses.size() == 100);
  // Initially every byte is about equally likely: ln 264 = 5.58.
  REQUIRE(losses.front() == Approx(5.5).margin(0.2));
  // A unigram model has 3.5 nats. Three seeds gave 2.53 to 2.60 on average here, 2.83 at most, and
  // 2.34 to 2.41 on the validation split.
  REQUIRE(mean_of_last(losses, 20) < 2.9);
  REQUIRE(largest_of_last(losses, 20) < 3.4);
  REQUIRE(numbers_of(directory / "run", "eval/validation/log_pplx").back() < 2.7);
}

TEST_CASE("a full run of SourceLm is as good as the README says", "[full]") {
  const TemporaryDirectory directory;
  output_of(directory.path(), {"--set", "sample_length=0"});
  const std::vector<double> losses = numbers_of(directory / "run", "loss");
  REQUIRE(losses.size() == 1500);
  // The README says "from 5.5 nats per byte to about 1.2". The text is that of this project, which
  // grew: 1.055 and 1.062 when it had a third of its lines, now 1.178 at two processor levels (to
  // four digits). Wrong products of a few shapes gave 1.435 on the small text and single losses up
  // to 4.3, right ones no late loss above 1.7.
  REQUIRE(losses.front() == Approx(5.5).margin(0.2));
  REQUIRE(numbers_of(directory / "run", "eval/validation/log_pplx").back() < 1.25);
  REQUIRE(largest_of_last(losses, 300) < 2.0);
}

}  // namespace
}  // namespace tessera
