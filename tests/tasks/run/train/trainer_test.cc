// SPDX-License-Identifier: Apache-2.0
// Runs in a run directory: the files they write, how they stop, and how they resume.
#include "tasks/run/train/trainer.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "core/base/error.h"
#include "core/hparams/text.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/synthetic_input.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/run_log.h"
#include "tasks/task/learner/schedules.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> checkpoints_of(const fs::path& directory) {
  return CheckpointStore(directory / "checkpoints").steps();
}

std::vector<std::string> events_of(const fs::path& directory) {
  return values_of(directory, "event");
}

std::string message_of(const ExperimentConfig& config, const fs::path& directory,
                       const RunWith& options = {}) {
  return error_of([&] { run_tiny(config, directory, options); });
}

TEST_CASE("a run's directory has all documented files") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(6);
  task_of(config).train.eval_interval_steps = 3;
  task_of(config).train.summary_interval_steps = 2;
  RunWith options;
  options.mode = TrainOptions{.dump_graph = GraphStage::kFuse, .profile = ProfileWindow{1, 2}};
  REQUIRE(run_tiny(config, directory.path(), options) == 0);
  for (const char* name :
       {"hparams.toml", "metrics.jsonl", "plan.txt", "plan.json", "program.json", "graph.dot",
        "graph.svg", "trace.json.gz", "graph_fuse.txt", "graph_fuse.dot", "graph_fuse.svg",
        "summaries/train", "summaries/validation", "checkpoints/step_0000000006/index.h5"}) {
    INFO(name);
    REQUIRE(fs::exists(directory / name));
  }
  // Every member of a training line in docs/formats.md is on each of the six lines.
  for (const char* member : {"loss", "log_pplx", "accuracy", "learning_rate", "grad_norm", "tokens",
                             "tokens_per_sec", "step_time", "input_wait", "skipped"}) {
    INFO(member);
    REQUIRE(values_of(directory.path(), member).size() == 6);
  }
  REQUIRE(values_of(directory.path(), "tokens").back() == std::to_string(6 * 8 * 16));
  REQUIRE(values_of(directory.path(), "eval/validation/log_pplx").size() == 2);
  REQUIRE(values_of(directory.path(), "eval/validation/weight").back() == "224");
  REQUIRE(events_of(directory.path()) ==
          std::vector<std::string>{"\"start\"", "\"save\"", "\"done\""});
}

TEST_CASE("an interrupted run resumes bit for bit in f32 and bf16") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    INFO(dtype_name(compute));
    ExperimentConfig config = tiny_config(12, compute);
    task_of(config).train.save_interval_steps = 4;
    task_of(config).learner.ema_decay = 0.9;
    const TemporaryDirectory whole, broken;
    REQUIRE(run_tiny(config, whole.path()) == 0);
    REQUIRE(run_tiny(config, broken.path()) == 0);
    // The state after a kill at step 9, with log lines beyond the checkpoint of step 8.
    fs::remove_all(broken / "checkpoints/step_0000000012");
    const auto expected = losses_of(whole.path());
    REQUIRE(expected.size() == 12);
    REQUIRE(run_tiny(config, broken.path()) == 0);
    REQUIRE(losses_of(broken.path()) == expected);
    REQUIRE(values_of(broken.path(), "loss").size() == 12);  // No step is logged twice.
    REQUIRE(read_bytes(broken / "metrics.jsonl").find("\"event\": \"restore\", \"step\": 8") !=
            std::string::npos);
    const Checkpoint a = CheckpointStore(whole / "checkpoints").open(12);
    const Checkpoint b = CheckpointStore(broken / "checkpoints").open(12);
    for (const auto& [path, entry] : a.entries()) {
      INFO(path);
      REQUIRE(array_bytes(a, path) == array_bytes(b, path));
    }
    REQUIRE(a.info().input_position == b.info().input_position);
  }
}

TEST_CASE("starting a complete run again changes nothing") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = tiny_config(2);
  REQUIRE(run_tiny(config, directory.path()) == 0);
  const std::string before = read_bytes(directory / "metrics.jsonl");
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(read_bytes(directory / "metrics.jsonl") == before);
}

TEST_CASE("a changed configuration is rejected with the differences, unless allowed") {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(tiny_config(2), directory.path()) == 0);
  ExperimentConfig changed = tiny_config(4);
  task_of(changed).train.seed = 77;
  REQUIRE_THAT(message_of(changed, directory.path()),
               Catch::Contains("task.train.num_train_steps: 2 -> 4") &&
                   Catch::Contains("task.train.seed: 1234 -> 77") &&
                   Catch::Contains("--allow_config_change"));
  RunWith allowed;
  allowed.allow_config_change = true;
  REQUIRE(run_tiny(changed, directory.path(), allowed) == 0);
  REQUIRE(losses_of(directory.path()).size() == 4);
  REQUIRE(run_tiny(changed, directory.path()) == 0);  // The run's configuration is the new one now.
}

TEST_CASE("a finished run accepts more steps without a flag, an unfinished one does not") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(4);
  task_of(config).train.save_interval_steps = 2;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  task_of(config).train.num_train_steps = 6;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(losses_of(directory.path()).size() == 6);

  fs::remove_all(directory / "checkpoints/step_0000000006");  // Makes the run unfinished.
  task_of(config).train.num_train_steps = 8;
  REQUIRE_THAT(message_of(config, directory.path()),
               Catch::Contains("task.train.num_train_steps: 6 -> 8"));
  task_of(config).train.num_train_steps = 3;
  REQUIRE_THAT(message_of(config, directory.path()),
               Catch::Contains("task.train.num_train_steps: 6 -> 3"));
}

TEST_CASE("a run without a log still checks its configuration against its checkpoints") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(2);
  REQUIRE(run_tiny(config, directory.path()) == 0);
  fs::remove(directory / "metrics.jsonl");
  task_of(config).train.seed = 77;
  REQUIRE_THAT(message_of(config, directory.path()),
               Catch::Contains("task.train.seed: 1234 -> 77"));
}

TEST_CASE("a start that took no step does not fix the configuration") {
  const TemporaryDirectory directory;
  RunWith dry;
  dry.dry_run = true;
  REQUIRE(run_tiny(tiny_config(2), directory.path(), dry) == 0);
  RunLog(directory.path(), 0).event("start", 0);
  RunLog(directory.path(), 0).event("console_lost", 0, "a closed pipe");
  RunLog(directory.path(), 0).event("failed", 0, "its first batch cannot be read");
  REQUIRE(run_tiny(tiny_config(3), directory.path()) == 0);
  REQUIRE(losses_of(directory.path()).size() == 3);
}

TEST_CASE("a checkpoint with an unreadable configuration is reported as a difference") {
  const std::string now = to_toml(to_tree(tiny_config(3)));
  REQUIRE(describe_change(now, now).empty());
  REQUIRE(describe_change(to_toml(to_tree(tiny_config(2))), now) ==
          "task.train.num_train_steps: 2 -> 3");
  std::string later = now;
  later.insert(later.find("num_train_steps"), "from_the_future = 1\n");
  REQUIRE_THAT(describe_change(later, now), Catch::Contains("one that this build cannot read") &&
                                                Catch::Contains("from_the_future"));
}

TEST_CASE("--restart moves the earlier run aside") {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(tiny_config(2), directory.path()) == 0);
  RunWith restart;
  restart.restart = true;
  REQUIRE(run_tiny(tiny_config(3), directory.path(), restart) == 0);
  REQUIRE(losses_of(directory.path()).size() == 3);
  REQUIRE(losses_of(directory / "before_restart_1").size() == 2);
  REQUIRE(fs::exists(directory / "before_restart_1/checkpoints/step_0000000002"));
}

TEST_CASE("a dry run checks everything, takes no step and writes nothing") {
  const TemporaryDirectory directory;
  RunWith dry;
  dry.dry_run = true;
  REQUIRE(run_tiny(tiny_config(3), directory / "run", dry) == 0);
  REQUIRE_FALSE(fs::exists(directory / "run"));
  ExperimentConfig wrong = tiny_config(3);
  wrong.input.as<SyntheticInput::HParams>().num_letters = 100;
  REQUIRE_THAT(message_of(wrong, directory / "run", dry), Catch::Contains("set vocab_size"));
}

TEST_CASE("checkpoints are kept by number, by multiples and by the best evaluation") {
  ExperimentConfig config = tiny_config(10);
  TrainHParams& train = task_of(config).train;
  train.save_interval_steps = 2;
  train.save_max_to_keep = 1;
  SECTION("newest") {
    const TemporaryDirectory directory;
    REQUIRE(run_tiny(config, directory.path()) == 0);
    REQUIRE(checkpoints_of(directory.path()) == std::vector<int64_t>{10});
  }
  SECTION("newest and every fourth") {
    train.save_keep_every_steps = 4;
    const TemporaryDirectory directory;
    REQUIRE(run_tiny(config, directory.path()) == 0);
    REQUIRE(checkpoints_of(directory.path()) == std::vector<int64_t>{4, 8, 10});
  }
  SECTION("newest and best") {
    // After step 4 the learning rate is so large that the loss increases.
    train.save_keep_best = "eval/validation/log_pplx";
    train.eval_interval_steps = 2;
    task_of(config).learner.optimizer_tpl = AdamW::HParams{
        .learning_rate = 1.0,
        .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {4}, .values = {0.01, 0.5}}};
    const TemporaryDirectory directory;
    REQUIRE(run_tiny(config, directory.path()) == 0);
    REQUIRE(checkpoints_of(directory.path()) == std::vector<int64_t>{4, 10});
  }
}

TEST_CASE("a run that stops early is complete") {
  ExperimentConfig config = tiny_config(50);
  TrainHParams& train = task_of(config).train;
  train.eval_interval_steps = 2;
  train.early_stopping = {
      .metric = "eval/validation/log_pplx", .target = 100.0, .stop_at_target = true};
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(checkpoints_of(directory.path()) == std::vector<int64_t>{2});
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(losses_of(directory.path()).size() == 2);
}

TEST_CASE("a run is initialised with the weights of another run") {
  const TemporaryDirectory first, second, third;
  REQUIRE(run_tiny(tiny_config(30), first.path()) == 0);
  const double learnt = std::stod(values_of(first.path(), "loss").back());
  ExperimentConfig config = tiny_config(1);
  task_of(config).train.init_from = {.directory = first.path().string()};
  REQUIRE(run_tiny(config, second.path()) == 0);
  const double taken_up = std::stod(values_of(second.path(), "loss").front());
  REQUIRE(taken_up < 0.5 * (learnt + 3.1));  // Far below the loss of a fresh start.

  task_of(config).train.init_from.load_rules = {{".*ffn.*", "$0"}};
  REQUIRE(run_tiny(config, third.path()) == 0);
  REQUIRE(std::stod(values_of(third.path(), "loss").front()) > 2.5);

  const TemporaryDirectory fourth;
  task_of(config).train.init_from.load_rules = {{"lm\\.softmax\\.w", "lm.softmax.table"}};
  REQUIRE_THAT(message_of(config, fourth.path()),
               Catch::Contains("'lm.softmax.table', which the other run does not have"));
}

TEST_CASE("SIGTERM saves a checkpoint at a step boundary, and the same command resumes") {
  ExperimentConfig config = tiny_config(400);
  const TemporaryDirectory whole, stopped;
  std::jthread terminator([&] {
    // The signal is sent after three steps: before the handler exists it would end this program.
    while (losses_of(stopped.path()).size() < 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::raise(SIGTERM);
  });
  REQUIRE(run_tiny(config, stopped.path()) == 0);
  terminator.join();
  const std::vector<int64_t> saved = checkpoints_of(stopped.path());
  REQUIRE(saved.size() == 1);
  REQUIRE(saved[0] >= 3);
  REQUIRE(saved[0] < 400);
  REQUIRE(events_of(stopped.path()).back() == "\"preempt\"");
  REQUIRE(static_cast<int64_t>(losses_of(stopped.path()).size()) == saved[0]);
  REQUIRE(run_tiny(config, stopped.path()) == 0);
  REQUIRE(run_tiny(config, whole.path()) == 0);
  REQUIRE(losses_of(stopped.path()) == losses_of(whole.path()));
}

TEST_CASE("steps with a non-finite loss are skipped, and too many in a row fail the run") {
  ExperimentConfig config = tiny_config(20);
  task_of(config).learner.optimizer_tpl = AdamW::HParams{
      .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {2}, .values = {1.0, 1e35}}};
  task_of(config).learner.max_skipped_in_a_row = 3;
  const TemporaryDirectory directory;
  REQUIRE_THAT(message_of(config, directory.path()),
               Catch::Contains("3 steps in a row were skipped"));
  REQUIRE(values_of(directory.path(), "skipped").back() == "3");
  REQUIRE(values_of(directory.path(), "loss").back() == "null");

  task_of(config).learner.skip_nonfinite_steps = false;
  const TemporaryDirectory other;
  REQUIRE_THAT(message_of(config, other.path()), Catch::Contains("skip_nonfinite_steps is off"));
}

// Steps from `first` on have a non-finite gradient.
ExperimentConfig diverging_config(int64_t num_train_steps, int64_t first) {
  ExperimentConfig config = tiny_config(num_train_steps);
  task_of(config).learner.optimizer_tpl = AdamW::HParams{
      .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {first - 2}, .values = {1.0, 1e35}}};
  task_of(config).learner.max_skipped_in_a_row = 0;
  config.eval_inputs.clear();
  return config;
}

TEST_CASE("a run fails as soon as more than half of its steps are certain to be skipped") {
  const TemporaryDirectory half, most, short_run;
  // 4 of 8 steps are skipped, which is not more than half.
  REQUIRE(run_tiny(diverging_config(8, 5), half.path()) == 0);
  REQUIRE(values_of(half.path(), "skipped").back() == "4");
  REQUIRE(message_of(diverging_config(9, 5), most.path()) ==
          "the run has failed: 5 of its 9 steps were skipped, more than half, because their loss "
          "or gradient was not finite or too large; lower the learning rate, or check the batches");
  REQUIRE_THAT(events_of(most.path()).back(), Catch::Contains("failed"));
  REQUIRE_FALSE(fs::exists(most / "checkpoints/step_0000000009"));
  REQUIRE_THAT(message_of(diverging_config(2, 2), short_run.path()), Catch::Equals("no error"));
  const TemporaryDirectory three;
  REQUIRE_THAT(message_of(diverging_config(3, 2), three.path()),
               Catch::Contains("2 of its 3 steps were skipped"));
  REQUIRE(losses_of(three.path()).size() == 3);
}

TEST_CASE("steps skipped before a resume count, and every later start fails the same way") {
  const TemporaryDirectory directory;
  ExperimentConfig config = diverging_config(9, 5);
  task_of(config).train.save_interval_steps = 6;
  for (int start = 0; start < 2; ++start) {
    REQUIRE_THAT(message_of(config, directory.path()), Catch::Contains("5 of its 9 steps"));
    REQUIRE(checkpoints_of(directory.path()) == std::vector<int64_t>{6});
  }
}

TEST_CASE("an evaluation with a non-finite loss fails the run after its line is written") {
  const TemporaryDirectory directory;
  ExperimentConfig config = diverging_config(4, 3);
  config.eval_inputs = tiny_config().eval_inputs;
  task_of(config).train.eval_interval_steps = 3;
  REQUIRE_THAT(message_of(config, directory.path()),
               Catch::Matches("the run has failed: eval/validation/loss is (nan|inf) after step 3; "
                              "lower the learning rate, or resume from an earlier checkpoint"));
  REQUIRE(values_of(directory.path(), "eval/validation/loss").back() == "null");
  const std::string log = read_bytes(directory / "metrics.jsonl");
  REQUIRE(log.find("-nan") == std::string::npos);
}

TEST_CASE("--mode=eval scores all requested checkpoints, then fails if a loss is not finite") {
  const TemporaryDirectory directory;
  ExperimentConfig config = diverging_config(4, 3);
  task_of(config).train.save_interval_steps = 1;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  config.eval_inputs = tiny_config().eval_inputs;
  RunWith eval;
  eval.mode = EvalOptions{{CheckpointChoice::Kind::kAll}};
  REQUIRE_THAT(message_of(config, directory.path(), eval),
               Catch::StartsWith("step 2: eval/validation/loss is ") ||
                   Catch::StartsWith("step 3: eval/validation/loss is "));
  const std::string scores = read_bytes(directory / "eval_out/validation.jsonl");
  REQUIRE(std::count(scores.begin(), scores.end(), '\n') == 3);  // The newest three are kept.
}

TEST_CASE("--mode=eval reads the newest checkpoint, and fails without one") {
  const TemporaryDirectory directory;
  RunWith eval;
  eval.mode = EvalOptions{};
  REQUIRE_THAT(message_of(tiny_config(2), directory.path(), eval),
               Catch::Contains("holds no checkpoint to evaluate"));
  REQUIRE(run_tiny(tiny_config(2), directory.path()) == 0);
  const std::string before = read_bytes(directory / "metrics.jsonl");
  REQUIRE(run_tiny(tiny_config(2), directory.path(), eval) == 0);
  REQUIRE(read_bytes(directory / "metrics.jsonl") == before);
}

TEST_CASE("invalid settings are rejected before the first step") {
  const TemporaryDirectory directory;
  SECTION("ids beyond the vocabulary") {
    ExperimentConfig config = tiny_config(2);
    config.input.as<SyntheticInput::HParams>().num_letters = 100;
    REQUIRE_THAT(message_of(config, directory.path()),
                 Catch::Contains("but the model's vocabulary has 24; set vocab_size"));
  }
  SECTION("more devices than the mesh has") {
    RunWith options;
    options.devices = 2;
    ExperimentConfig config = tiny_config(2);
    config.mesh.ici_mesh_shape = {1, 1, 1};
    REQUIRE_THAT(message_of(config, directory.path(), options),
                 Catch::Contains("needs 1 device, but 2 are available"));
  }
  SECTION("numbers out of range") {
    ExperimentConfig config = tiny_config(2);
    TrainHParams& train = task_of(config).train;
    train.prefetch_batches = 0;
    REQUIRE_THAT(message_of(config, directory.path()),
                 Catch::Contains("train.prefetch_batches is 0, expected 1 to 1024"));
    train.prefetch_batches = 1;
    train.collective_timeout_seconds = 0;
    REQUIRE_THAT(message_of(config, directory.path()),
                 Catch::Contains("collective_timeout_seconds is 0, expected at least 1"));
    train.collective_timeout_seconds = 1;
    train.early_stopping.target = std::nan("");
    REQUIRE_THAT(message_of(config, directory.path()),
                 Catch::Contains("early_stopping.target is nan, expected a finite number"));
    train.early_stopping.target = 0.0;
    train.eval_loop_num_batches = 0;
    REQUIRE_THAT(message_of(config, directory.path()),
                 Catch::Contains("expected at least 1, or -1 (-1: the whole dataset)"));
  }
  SECTION("unknown early stopping metric") {
    ExperimentConfig config = tiny_config(2);
    task_of(config).train.early_stopping.metric = "eval/validation/los";
    REQUIRE_THAT(message_of(config, directory.path()),
                 Catch::Contains("did you mean 'eval/validation/loss'?"));
    REQUIRE_FALSE(fs::exists(directory / "metrics.jsonl"));
  }
}

TEST_CASE("a second run in the same directory is rejected") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(2);
  const fs::path path = directory.path();
  RunWith options;
  options.experiment = "tests.Tiny";
  options.job_log_dir = path;
  options.verbosity = Verbosity::kSilent;
  const TinyDevices devices;
  ProcessGroup alone;
  const auto first = make_run(config, options, devices.in_order(), alone);
  REQUIRE_THAT(message_of(config, path), Catch::Contains("process"));
}

TEST_CASE("a training input that ends too early is an error") {
  ExperimentConfig config = tiny_config(5);
  config.input.as<SyntheticInput::HParams>().num_batches = 3;
  const TemporaryDirectory directory;
  REQUIRE_THAT(message_of(config, directory.path()),
               Catch::Contains("the training input ended after 3 batches"));
}

}  // namespace
}  // namespace tessera
