// SPDX-License-Identifier: Apache-2.0
// A stop signal during an evaluation ends it between two batches; the state is saved, and a resume
// begins with that evaluation. A long evaluation shows its progress.
#include <chrono>
#include <csignal>
#include <thread>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/tasks/run/eval/tiny_mixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Evaluations of three batches, then two, after steps 2 and 4.
ExperimentConfig evaluated_config() {
  ExperimentConfig config = tiny_config(4);
  task_of(config).train.eval_interval_steps = 2;
  config.eval_inputs = {{"mixture", TinyMixture::HParams{}},
                        {"rolling", TinyMixture::HParams{.repeat = true}}};
  config.eval.datasets["rolling"].num_batches = 2;
  config.eval.datasets["rolling"].reset_for_eval = false;
  return config;
}

// Counts the batches of evaluations while it lives, and calls `at` before batch number `number`.
class Counted {
 public:
  explicit Counted(int number, void (*at)()) {
    TinyMixture::before_batch = [this, number, at] {
      if (++count_ == number) at();
    };
  }
  ~Counted() { TinyMixture::before_batch = {}; }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

TEST_CASE("a stop signal ends an evaluation between batches, and a resume repeats it") {
  const ExperimentConfig config = evaluated_config();
  const TemporaryDirectory whole;
  REQUIRE(run_tiny(config, whole.path()) == 0);
  struct Stop {
    int batch;         // Batch of all evaluations: 2 before step 0, then 6 in each, with the end.
    int64_t step;      // The step after which the evaluation is.
    size_t evaluated;  // Evaluations before it.
  };
  for (const auto& [batch, step, evaluated] : {Stop{4, 2, 0}, {8, 2, 0}, {10, 4, 1}}) {
    INFO("batch " << batch);
    const TemporaryDirectory stopped;
    {
      const Counted batches(batch, [] { std::raise(SIGTERM); });
      REQUIRE(run_tiny(config, stopped.path()) == 0);
      REQUIRE(batches.count() == batch);
    }
    REQUIRE(CheckpointStore(stopped / "checkpoints").steps() == std::vector<int64_t>{step});
    REQUIRE(values_of(stopped.path(), "event").back() == "\"preempt\"");
    REQUIRE(values_of(stopped.path(), "eval/mixture/log_pplx").size() == evaluated);
    REQUIRE(run_tiny(config, stopped.path()) == 0);
    for (const char* name : {"loss", "eval/mixture/log_pplx", "eval/rolling/log_pplx"}) {
      INFO(name);
      REQUIRE(values_of(stopped.path(), name) == values_of(whole.path(), name));
    }
    // The run is complete: another start does nothing.
    const std::string log = read_bytes(stopped / "metrics.jsonl");
    REQUIRE(run_tiny(config, stopped.path()) == 0);
    REQUIRE(read_bytes(stopped / "metrics.jsonl") == log);
  }
}

TEST_CASE("--mode=eval ends at a stop signal between batches, without a score") {
  const ExperimentConfig config = evaluated_config();
  const TemporaryDirectory run;
  REQUIRE(run_tiny(config, run.path()) == 0);
  const Counted batches(4, [] { std::raise(SIGUSR2); });  // Two are read at the start.
  RunWith options;
  options.mode = EvalOptions{};
  REQUIRE(run_tiny(config, run.path(), options) == 0);
  REQUIRE(batches.count() == 4);
  REQUIRE_FALSE(fs::exists(run / "eval_out/mixture.jsonl"));
}

TEST_CASE("an evaluation that takes longer than a second shows its progress") {
  ExperimentConfig config = evaluated_config();
  config.eval_inputs.erase("rolling");
  config.eval.datasets = {};
  config.eval.datasets["mixture"].num_batches = 3;
  const TinyDevices devices;
  ProcessGroup alone;
  Session session(config, {.trains = false}, devices.in_order(), alone);
  initialise_state(session.executor(), session.task().model().parameters(), 7, 1);
  std::vector<std::string> shown;
  const auto show = [&](const std::string& text) { shown.push_back(text); };
  session.evaluation().run(alone, {.progress = show});
  REQUIRE(shown.empty());
  const Counted batches(2, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1010)); });
  session.evaluation().run(alone, {.progress = show});
  REQUIRE(shown == std::vector<std::string>{"evaluating mixture: 2/3 batches",
                                            "evaluating mixture: 3/3 batches"});
}

}  // namespace
}  // namespace tessera
