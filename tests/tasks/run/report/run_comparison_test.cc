// SPDX-License-Identifier: Apache-2.0
// Several runs as one page and as tables.
#include "tasks/run/report/run_comparison.h"

#include <algorithm>
#include <sstream>

#include "tasks/run/directory/run_config.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/run/report/sample_run.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("a comparison has the final metrics and what differs in the configurations") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "a", 40);
  write_sample_run(folder / "b", 60);
  write_bytes(folder / "b/hparams.toml",
              "# sample.Run\n[task.model]\nmodel_dims = 128\nname = \"</script><b>\"\nextra = 1\n"
              "[task.train]\nnum_train_steps = 120\nseed = 1234\n");
  const RunComparison comparison = compare_runs({folder / "a/", folder / "b"});
  REQUIRE(comparison.names == std::vector<std::string>{"a", "b"});
  REQUIRE(comparison.finals.front().first == "step");
  REQUIRE(comparison.finals.front().second == std::vector<std::optional<double>>{40.0, 60.0});
  using Values = std::vector<std::optional<std::string>>;
  REQUIRE(comparison.differences.size() == 2);
  REQUIRE(comparison.differences[0].first == "task.model.extra");
  REQUIRE(comparison.differences[0].second == Values{std::nullopt, "1"});
  REQUIRE(comparison.differences[1].second == Values{"64", "128"});
  const std::string text = comparison_text(comparison);
  REQUIRE_THAT(text, Contains("Final values") && Contains("eval/validation/log_pplx") &&
                         Contains("task.model.model_dims") && Contains("absent"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) REQUIRE(line.size() <= 100);
  REQUIRE_THAT(comparison.page, Contains(R"("kind": "comparison")") && !Contains("</script><b>"));
}

TEST_CASE("of speeds a comparison has the usual one, not that of the last step") {
  const TemporaryDirectory folder;
  for (const char* name : {"a", "b"}) {
    std::string log;
    for (int step = 1; step <= 9; ++step)
      log += fmt::format("{{\"step\": {}, \"loss\": {}, \"tokens_per_sec\": {}}}\n", step, step,
                         step == 9 ? 1 : 100 + step);
    write_bytes(folder / (std::string(name) + "/metrics.jsonl"), log);
  }
  const RunComparison comparison = compare_runs({folder / "a", folder / "b"});
  REQUIRE(comparison.finals[1].first == "loss");
  REQUIRE(comparison.finals[1].second[0] == 9.0);
  REQUIRE(comparison.finals[2].first == "tokens_per_sec");
  REQUIRE(comparison.finals[2].second[0] == 106.0);  // The median of 105 to 108 and 1.
}

TEST_CASE("runs of the same name have as much of their paths as tells them apart") {
  const TemporaryDirectory folder;
  for (const char* name : {"x/run", "y/run", "z"}) write_sample_run(folder / name, 2);
  REQUIRE(compare_runs({folder / "x/run", folder / "y/run"}).names ==
          std::vector<std::string>{"x/run", "y/run"});
  const RunComparison three = compare_runs({folder / "x/run", folder / "y/run", folder / "z"});
  REQUIRE(std::ranges::count(three.names, "x/run") == 1);
  REQUIRE_THAT(comparison_text(three), Contains("The runs have the same configuration."));
}

TEST_CASE("short names are the shortest ends of paths that differ") {
  using Texts = std::vector<std::string>;
  REQUIRE(short_names({"num_layers", "task.train.seed", "input.seed"}, '.') ==
          Texts{"num_layers", "train.seed", "input.seed"});
  REQUIRE(short_names({"seed", "task.train.seed"}, '.') == Texts{"seed", "train.seed"});
  REQUIRE(short_names({"task.learner.learning_rate"}, '.') == Texts{"learning_rate"});
}

TEST_CASE("a folder stands for the runs in it, by name, but not for those set aside") {
  const TemporaryDirectory folder;
  for (const char* name : {"trial_0002", "trial_0001", "before_restart_1/trial_0001"})
    write_sample_run(folder / name, 2);
  write_bytes(folder / "lock", "");
  using Paths = std::vector<std::filesystem::path>;
  REQUIRE(runs_of(folder.path()) == Paths{folder / "trial_0001", folder / "trial_0002"});
  REQUIRE(runs_of(folder / "trial_0001") == Paths{folder / "trial_0001"});
  REQUIRE(runs_of(folder / "absent") == Paths{folder / "absent"});
}

TEST_CASE("long values and many runs fit 100 columns") {
  const TemporaryDirectory folder;
  std::vector<std::filesystem::path> runs;
  for (int i = 0; i < 8; ++i) {
    runs.push_back(folder / (std::string(120, 'n') + std::to_string(i)));
    write_sample_run(runs.back(), 2);
    write_bytes(runs.back() / "hparams.toml",
                "# a\nx = \"" + std::string(300, static_cast<char>('a' + i)) + "\"\n");
  }
  std::istringstream lines(comparison_text(compare_runs(runs)));
  for (std::string line; std::getline(lines, line);) REQUIRE(line.size() <= 100);
}

TEST_CASE("a comparison needs two different runs") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "a", 2);
  const auto problem = [&](const std::vector<std::filesystem::path>& runs) {
    return error_of([&] { compare_runs(runs); });
  };
  REQUIRE_THAT(problem({folder / "a"}), Contains("needs at least two runs"));
  REQUIRE_THAT(problem({folder / "a", folder / "a/."}), Contains("are the same run"));
  REQUIRE_THAT(problem({folder / "a", folder / "b"}), Contains("no such directory"));
  REQUIRE_THAT(problem(std::vector(101, folder / "a")), Contains("got 101 runs, expected at most"));
}

}  // namespace
}  // namespace tessera
