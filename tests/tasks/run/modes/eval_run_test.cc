// SPDX-License-Identifier: Apache-2.0
// --mode=eval on a run's directory: which checkpoints it scores, what it writes, and that it does
// not change the training run.
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/eval/eval_output.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"
#include "tests/tasks/run/eval/tiny_mixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Kind = CheckpointChoice::Kind;

RunWith eval_of(const CheckpointChoice& choice) {
  RunWith options;
  options.mode = EvalOptions{choice};
  return options;
}

// `steps` steps with a checkpoint and an evaluation every `interval` steps. Followers poll often.
ExperimentConfig watched_config(int64_t steps = 12, int64_t interval = 3) {
  ExperimentConfig config = tiny_config(steps);
  task_of(config).train.save_interval_steps = interval;
  task_of(config).train.save_max_to_keep = 0;
  task_of(config).train.eval_interval_steps = interval;
  config.eval.follow_poll_seconds = 0.01;
  config.eval.follow_patience_seconds = 30.0;
  return config;
}

// The value of `key` by step, from lines of JSON.
std::map<int64_t, double> numbers(const fs::path& file, const std::string& key) {
  std::map<int64_t, double> values;
  if (!fs::exists(file)) return values;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const Json root = parse_json(line, file.string());
    if (const Json* value = root.find(key))
      values[root.at("step").as_integer()] = value->as_number();
  }
  return values;
}

std::map<int64_t, double> scored(const fs::path& run) {
  return numbers(run / "eval_out/validation.jsonl", "log_pplx");
}

std::map<int64_t, double> in_training(const fs::path& run) {
  return numbers(run / "metrics.jsonl", "eval/validation/log_pplx");
}

int64_t lines_in(const fs::path& file) {
  const std::string text = read_file(file);
  return std::count(text.begin(), text.end(), '\n');
}

TEST_CASE("the newest, one, or all checkpoints get the same scores as in training") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = watched_config();
  const fs::path run = directory.path();
  REQUIRE(run_tiny(config, run) == 0);
  const auto expected = in_training(run);
  REQUIRE(expected.size() == 4);
  const std::string log = read_file(run / "metrics.jsonl");

  REQUIRE(run_tiny(config, run, eval_of({})) == 0);
  REQUIRE(scored(run) == std::map<int64_t, double>{{12, expected.at(12)}});
  REQUIRE(run_tiny(config, run, eval_of({Kind::kStep, 6})) == 0);
  REQUIRE(scored(run).at(6) == expected.at(6));
  REQUIRE(run_tiny(config, run, eval_of({Kind::kAll})) == 0);
  REQUIRE(scored(run) == expected);
  REQUIRE(lines_in(run / "eval_out/validation.jsonl") == 6);
  REQUIRE(fs::exists(run / "eval_out/summaries/validation"));
  // No file of the training run changed.
  REQUIRE(read_file(run / "metrics.jsonl") == log);
  REQUIRE(run_tiny(config, run) == 0);  // The run is complete, so this does nothing.
  REQUIRE(read_file(run / "metrics.jsonl") == log);

  REQUIRE_THROWS_WITH(run_tiny(config, run, eval_of({Kind::kStep, 7})),
                      Catch::Contains("no checkpoint of step 7; there are 3, 6, 9, 12"));
}

TEST_CASE("write_examples writes the log-probability of each label") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(2);
  config.eval.datasets["validation"].write_examples = true;
  const fs::path run = directory.path();
  REQUIRE(run_tiny(config, run) == 0);
  REQUIRE_FALSE(fs::exists(run / "eval_out"));
  REQUIRE(run_tiny(config, run, eval_of({})) == 0);
  std::istringstream lines(read_file(run / "eval_out/validation/step_0000000002.jsonl"));
  double nats = 0.0, labels = 0.0;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json example = parse_json(line, "line");
    REQUIRE(example.at("example").as_integer() == number++);
    REQUIRE(example.at("labels").as_array().size() == 16);
    REQUIRE(example.at("log_probs").as_array().size() == 16);
    for (const Json& each : example.at("log_probs").as_array()) {
      nats -= each.as_number();
      labels += each.as_number() != 0.0 ? 1 : 0;
    }
  }
  REQUIRE(number == 16);
  REQUIRE(nats / labels ==
          Approx(numbers(run / "eval_out/validation.jsonl", "log_pplx").at(2)).epsilon(1e-5));
}

TEST_CASE("a running job is followed until it is done, although checkpoints are removed") {
  const TemporaryDirectory directory;
  ExperimentConfig config = watched_config(60, 4);
  task_of(config).train.save_max_to_keep = 1;
  const fs::path run = directory.path();
  int followed = -1;
  {
    // The follower starts before the run directory has content.
    const std::jthread follower(
        [&] { followed = run_tiny(config, run, eval_of({Kind::kFollow})); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    REQUIRE(run_tiny(config, run) == 0);
  }
  REQUIRE(followed == 0);
  const auto expected = in_training(run), found = scored(run);
  REQUIRE(expected.size() == 15);
  REQUIRE(found.count(60) == 1);
  for (const auto& [step, value] : found) REQUIRE(value == expected.at(step));
  REQUIRE(lines_in(run / "eval_out/validation.jsonl") == static_cast<int64_t>(found.size()));

  // Following again scores nothing twice.
  const std::string before = read_file(run / "eval_out/validation.jsonl");
  REQUIRE(run_tiny(config, run, eval_of({Kind::kFollow})) == 0);
  REQUIRE(read_file(run / "eval_out/validation.jsonl") == before);
}

TEST_CASE("a stopped job is followed until the patience time or a signal ends it") {
  const TemporaryDirectory directory;
  ExperimentConfig config = watched_config(6);
  const fs::path run = directory.path();
  REQUIRE(run_tiny(config, run) == 0);
  // The log of a job that was killed before its end.
  const std::string log = read_file(run / "metrics.jsonl");
  const size_t last = log.rfind('\n', log.size() - 2) + 1;
  REQUIRE_THAT(log.substr(last), Catch::Contains("\"done\""));
  write_file_atomically(run / "metrics.jsonl", log.substr(0, last));
  SECTION("patience") {
    config.eval.follow_patience_seconds = 0.2;
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(run_tiny(config, run, eval_of({Kind::kFollow})) == 0);
    REQUIRE(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(200));
    REQUIRE(scored(run) == in_training(run));
  }
  SECTION("signal") {
    std::atomic<bool> ended = false;
    const std::jthread killer([&] {
      while (scored(run).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::raise(SIGTERM);
    });
    const std::jthread watchdog([&] {
      for (int i = 0; i < 2000 && !ended; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!ended) std::abort();
    });
    REQUIRE(run_tiny(config, run, eval_of({Kind::kFollow})) == 0);
    ended = true;
  }
}

TEST_CASE("a checkpoint removed during scoring is skipped") {
  const TemporaryDirectory directory;
  ExperimentConfig config = watched_config();
  config.eval_inputs["validation"] = TinyMixture::HParams{};
  const fs::path run = directory.path();
  REQUIRE(run_tiny(config, run) == 0);
  TinyMixture::before_batch = [&] { fs::remove_all(run / "checkpoints/step_0000000006"); };
  const int ended = run_tiny(config, run, eval_of({Kind::kAll}));
  TinyMixture::before_batch = {};
  REQUIRE(ended == 0);
  REQUIRE(scored(run).size() == 3);
  REQUIRE(scored(run).count(6) == 0);

  // A damaged checkpoint is an error.
  fs::resize_file(run / "checkpoints/step_0000000009/host_00000.h5", 100);
  REQUIRE_THROWS_WITH(run_tiny(config, run, eval_of({Kind::kAll})),
                      Catch::Contains("step_0000000009"));
}

TEST_CASE("several processes follow a job together") {
  const TemporaryDirectory directory;
  ExperimentConfig config = watched_config(6);
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  const fs::path run = directory.path();
  REQUIRE(run_tiny(config, run) == 0);
  config.mesh.ici_mesh_shape = {1, 2, 1};
  const auto transports = make_loopback(2);
  std::vector<int> ended(2, -1);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup processes(transports[rank], std::chrono::seconds(60));
        ended[rank] = run_tiny(config, run, eval_of({Kind::kFollow}), processes);
      });
  }
  REQUIRE(ended == std::vector<int>{0, 0});
  const auto expected = in_training(run), found = scored(run);
  REQUIRE(found.size() == 2);
  for (const auto& [step, value] : found) REQUIRE(value == Approx(expected.at(step)).epsilon(1e-5));
}

TEST_CASE("rolling evaluation resumes at the position in the checkpoint") {
  const TemporaryDirectory directory;
  const auto config_of = [](int64_t steps) {
    ExperimentConfig config = watched_config(steps);
    config.eval_inputs["validation"] = TinyMixture::HParams{.repeat = true};
    config.eval.datasets["validation"] = {.num_batches = 2, .reset_for_eval = false};
    return config;
  };
  REQUIRE(run_tiny(config_of(12), directory / "whole") == 0);
  RunWith longer;
  longer.allow_config_change = true;
  REQUIRE(run_tiny(config_of(6), directory / "halves") == 0);
  REQUIRE(run_tiny(config_of(12), directory / "halves", longer) == 0);
  const auto expected = in_training(directory / "whole");
  REQUIRE(in_training(directory / "halves") == expected);
  // With reset_for_eval, the third evaluation reads the first rows again.
  ExperimentConfig anew = config_of(12);
  anew.eval.datasets["validation"].reset_for_eval = true;
  REQUIRE(run_tiny(anew, directory / "anew") == 0);
  REQUIRE(in_training(directory / "anew").at(3) == expected.at(3));
  REQUIRE(in_training(directory / "anew").at(9) != expected.at(9));

  // --mode=eval reads the rows that training would read next.
  REQUIRE(run_tiny(config_of(12), directory / "whole", eval_of({Kind::kStep, 6})) == 0);
  REQUIRE(run_tiny(config_of(12), directory / "halves", eval_of({Kind::kStep, 6})) == 0);
  REQUIRE(scored(directory / "whole") == scored(directory / "halves"));
}

TEST_CASE("evaluation without datasets or without a checkpoint is an error") {
  const TemporaryDirectory directory;
  ExperimentConfig config = watched_config(3);
  REQUIRE_THROWS_WITH(run_tiny(config, directory.path(), eval_of({})),
                      Catch::Contains("holds no checkpoint to evaluate; train first"));
  REQUIRE(run_tiny(config, directory.path()) == 0);
  config.eval_inputs.clear();
  REQUIRE_THROWS_WITH(run_tiny(config, directory.path(), eval_of({})),
                      Catch::Contains("has no eval_inputs, so there is nothing to score"));
}

TEST_CASE("concurrent writers append whole lines, and a partial last line is removed") {
  const TemporaryDirectory directory;
  const fs::path file = directory / "deep/lines.jsonl";
  const std::string half = "{\"half\": " + std::string(10000, '1');
  append_shared_line(file, "{\"first\": 1}");
  std::ofstream(file, std::ios::app) << half;
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer)
      writers.emplace_back([&, writer] {
        for (int i = 0; i < 50; ++i)
          append_shared_line(file, fmt::format("{{\"writer\": {}, \"line\": {}}}", writer, i));
      });
  }
  REQUIRE(lines_in(file) == 201);
  std::ifstream lines(file);
  std::map<int64_t, int64_t> next;
  for (std::string line; std::getline(lines, line);) {
    const Json root = parse_json(line, file.string());
    if (const Json* writer = root.find("writer"))
      REQUIRE(root.at("line").as_integer() == next[writer->as_integer()]++);
  }
  REQUIRE(next == std::map<int64_t, int64_t>{{0, 50}, {1, 50}, {2, 50}, {3, 50}});
  // A file that holds only a partial line.
  write_file_atomically(directory / "half", half);
  append_shared_line(directory / "half", "{}");
  REQUIRE(read_file(directory / "half") == "{}\n");
}

TEST_CASE("a dry run rejects a damaged checkpoint, as scoring does") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = watched_config(3);
  REQUIRE(run_tiny(config, directory.path()) == 0);
  RunWith dry = eval_of({});
  dry.dry_run = true;
  REQUIRE(run_tiny(config, directory.path(), dry) == 0);
  const fs::path shard = directory / "checkpoints/step_0000000003/host_00000.h5";
  std::string bytes = read_bytes(shard);
  bytes.back() = static_cast<char>(~bytes.back());
  write_bytes(shard, bytes);
  REQUIRE_THROWS_WITH(run_tiny(config, directory.path(), dry), Catch::Contains("damaged"));
  REQUIRE_THROWS_WITH(run_tiny(config, directory.path(), eval_of({})), Catch::Contains("damaged"));
}

}  // namespace
}  // namespace tessera
