// SPDX-License-Identifier: Apache-2.0
#include "tasks/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/graph/svg.h"
#include "core/graph/text.h"
#include "core/runtime/checkpoint_saver.h"
#include "core/runtime/launch_trace.h"
#include "tasks/console.h"
#include "tasks/early_stopper.h"
#include "tasks/line_log.h"
#include "tasks/model_state.h"
#include "tasks/plan_report.h"
#include "tasks/printable.h"
#include "tasks/run_config.h"
#include "tasks/run_directory.h"
#include "tasks/run_log.h"
#include "tasks/sample_text.h"
#include "tasks/session.h"
#include "tasks/stop_signal.h"
#include "tasks/throughput.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

std::string hash_of(const Graph& graph) {
  const std::string text = graph_text(graph);
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

// --dump_graph: the training step at one stage, as text and as a drawing.
std::function<void(std::string_view, const Graph&)> dump(const RunOptions& options) {
  if (options.dump_graph.empty()) return nullptr;
  return [&options](std::string_view stage, const Graph& graph) {
    if (stage != options.dump_graph) return;
    const fs::path file = options.job_log_dir / fmt::format("graph_{}", stage);
    write_file_atomically(file.string() + ".txt", graph_text(graph));
    write_file_atomically(file.string() + ".svg", graph_svg(graph));
  };
}

// Whoever only reads takes no lock.
std::unique_ptr<RunLock> locked(const RunOptions& options) {
  if (options.mode != RunMode::kTrain) return nullptr;
  return take_run_directory(options.job_log_dir,
                            options.restart ? Earlier::kSetAside : Earlier::kKeep);
}

// Whoever only reads leaves the directory as it is, and may evaluate on other datasets.
std::string settled(const ExperimentConfig& config, const RunOptions& options) {
  if (options.mode != RunMode::kTrain) return "";
  return settle_config(options.job_log_dir, options.experiment, config, options.overrides,
                       options.allow_config_change ? ConfigChange::kAllow : ConfigChange::kRefuse);
}

// Why a run ended before its last step, kept in its last checkpoint.
constexpr const char* kStopReason = "trainer/stop_reason";
constexpr const char* kBestMetric = "trainer/best_metric";
constexpr const char* kEvalsSinceBest = "trainer/evals_since_best";

}  // namespace

struct Trainer::Impl {
  Impl(const ExperimentConfig& config, const RunOptions& options, Device& device);
  int run();

 private:
  void begin();
  void check_metric(std::string_view field, const std::string& metric) const;
  void start_from(const InitFrom& other);
  void restore(int64_t step);
  void introduce();
  int train();
  int evaluate_only();
  void train_step();
  StepResult run_step(const Batch& batch);
  void check_health(const StepResult& result);
  void record(const StepResult& result, double input_wait);
  void evaluate();
  void save();
  void report_saves();
  void finish();

  const TrainHParams& p() const { return session_.train(); }
  bool complete() const { return step_ >= p().num_train_steps || !stop_reason_.empty(); }

  RunOptions options_;
  Device& device_;
  fs::path directory_;
  std::unique_ptr<RunLock> lock_;  // Of those that write: null unless training.
  std::string hparams_toml_;
  Session session_;
  Throughput throughput_;
  EarlyStopper early_stopper_;
  CheckpointStore store_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<RunLog> log_;
  Console console_;
  LaunchTrace launch_trace_;
  int64_t step_ = 0;         // Steps done.
  int64_t steps_taken_ = 0;  // By this process.
  int64_t saved_step_ = -1;  // Of the last checkpoint.
  std::string stop_reason_;  // Why to end before num_train_steps; empty: go on.
  std::string graph_hash_;   // Of the training step as traced.
};

Trainer::Impl::Impl(const ExperimentConfig& config, const RunOptions& options, Device& device)
    : options_(options),
      device_(device),
      directory_(options.job_log_dir),
      lock_(locked(options)),
      hparams_toml_(settled(config, options)),
      session_(config,
               {.run_directory = directory_,
                .devices = options.devices,
                .trains = options.mode != RunMode::kEval,
                .allocates = options.mode != RunMode::kPlan,
                .on_stage = dump(options_)},
               device),
      throughput_(session_.tokens_per_step(), model_flops(session_.train_graph()), device,
                  options.devices),
      early_stopper_(p().early_stopping),
      store_(directory_ / "checkpoints"),
      console_(options.verbosity == Verbosity::kSilent ? Console::Mode::kSilent
                                                       : Console::detect()) {
  begin();
}

void Trainer::Impl::begin() {
  check_metric("early_stopping.metric", p().early_stopping.metric);
  check_metric("save_keep_best", p().save_keep_best);
  graph_hash_ = hash_of(session_.train_graph());
  if (options_.mode == RunMode::kPlan) return;
  const std::optional<int64_t> newest = store_.newest();
  if (newest) {
    restore(*newest);
  } else if (options_.mode == RunMode::kEval) {
    fail("{} holds no checkpoint to evaluate; train first", store_.directory().string());
  } else {
    initialise_state(session_.executor(), session_.task().model().parameters(),
                     static_cast<uint64_t>(p().seed), options_.threads);
    if (!p().init_from.directory.empty()) start_from(p().init_from);
  }
  if (options_.mode == RunMode::kTrain) write_plan_files(directory_, session_);
}

// Weights of another run in place of fresh ones.
void Trainer::Impl::start_from(const InitFrom& other) {
  const CheckpointStore store(fs::path(other.directory) / "checkpoints");
  const std::optional<int64_t> step = other.step >= 0 ? other.step : store.newest();
  if (!step) fail("task.train.init_from: {} holds no checkpoint", store.directory().string());
  const std::vector<std::string> taken = load_weights(
      session_.executor(), session_.task().model().parameters(), store.open(*step), other);
  console_.say(fmt::format("{} weights from step {} of {}:", taken.size(), *step, other.directory));
  for (const std::string& line : taken) console_.say("  " + line);
}

// A metric to watch must be one that evaluation gives.
void Trainer::Impl::check_metric(std::string_view field, const std::string& metric) const {
  if (metric.empty()) return;
  const std::vector<std::string> names = session_.eval_metric_names();
  if (std::find(names.begin(), names.end(), metric) == names.end())
    fail("task.train.{}: evaluation gives no '{}'{}; it gives {}", field, metric,
         did_you_mean(metric, names), fmt::join(names, ", "));
}

void Trainer::Impl::restore(int64_t step) {
  const Checkpoint checkpoint = store_.open(step);
  restore_state(session_.executor(), checkpoint);
  const CheckpointInfo& info = checkpoint.info();
  if (options_.mode == RunMode::kTrain) {
    InputState state{info.input_position, info.input_extra};
    const auto take = [&](const char* name) {
      const auto node = state.extra.extract(name);
      return node ? node.mapped() : std::string();
    };
    stop_reason_ = take(kStopReason);
    if (info.hparams != hparams_toml_) {
      stop_reason_.clear();  // Asked to go on differently.
    } else if (info.graph_hash != graph_hash_) {
      console_.say("note: this build computes a step in another way than the one that saved step " +
                   std::to_string(step) + "; losses may differ by rounding");
    }
    const std::string best = take(kBestMetric), since = take(kEvalsSinceBest);
    if (!best.empty()) early_stopper_.restore({std::stod(best), std::stoll(since)});
    session_.input().restore(state);
  }
  step_ = info.step;
  saved_step_ = info.step;
}

void Trainer::Impl::introduce() {
  const ParameterTable& table = session_.task().model().parameters();
  console_.say(fmt::format("{} in {}", options_.experiment, directory_.string()));
  console_.say(device_.description());
  console_.say(table.text());
  console_.say(plan_summary(session_));
}

int Trainer::Impl::run() {
  if (options_.mode == RunMode::kPlan) {
    console_.say(plan_text(session_));
    return 0;
  }
  if (options_.mode == RunMode::kEval) return evaluate_only();
  introduce();
  if (complete()) {
    console_.say(fmt::format("{} is complete: {} steps done{}{}", directory_.string(), step_,
                             stop_reason_.empty() ? "" : "; ", stop_reason_));
    return 0;
  }
  if (options_.dry_run) {
    console_.say("dry run: ready to take step " + std::to_string(step_ + 1));
    return 0;
  }
  return train();
}

int Trainer::Impl::evaluate_only() {
  for (const auto& [name, value] : session_.evaluate())
    console_.say(fmt::format("step {}  {} {:.4f}", step_, name, value));
  return 0;
}

int Trainer::Impl::train() {
  StopSignal stop;
  const bool restored = saved_step_ >= 0;
  log_ = std::make_unique<RunLog>(directory_, step_);
  saver_ = std::make_unique<CheckpointSaver>(
      store_, RetentionPolicy{.newest = p().save_max_to_keep,
                              .every_steps = p().save_keep_every_steps,
                              .best = !p().save_keep_best.empty()});
  for (const auto& [step, value] : values_in_log(directory_ / "metrics.jsonl", p().save_keep_best))
    saver_->set_metric(step, value);
  log_->event("start", step_, {{"devices", options_.devices}, {"processes", 1}});
  if (restored) {
    log_->event("restore", step_);
    console_.say(fmt::format("restored step {}", step_));
  }
  while (!complete()) {
    // Pax's order: save the state before the step, train, evaluate, stop early.
    if (is_due(step_, p().save_interval_steps)) save();
    train_step();
    if (is_due(step_, p().eval_interval_steps) || step_ == p().num_train_steps) evaluate();
    report_saves();
    if (stop.requested() && !complete()) {
      save();
      saver_->wait();
      report_saves();
      log_->event("preempt", step_);
      console_.say(fmt::format("{}: saved step {}; the same command goes on from there",
                               stop.name(), step_));
      return 0;
    }
  }
  finish();
  return 0;
}

void Trainer::Impl::train_step() {
  const Clock::time_point begin = Clock::now();
  const std::optional<Batch> batch = session_.input().get_next();
  if (!batch)
    fail(
        "the training input ended after {} batches, before num_train_steps={}; let it repeat, or "
        "train for fewer steps",
        step_, p().num_train_steps);
  const double input_wait = session_.input().take_wait_seconds();
  const StepResult result = run_step(*batch);
  ++step_;
  throughput_.add_step(seconds_since(begin));
  record(result, input_wait);
  check_health(result);
}

// Steps of the --profile window are observed; the trace is written after the last of them.
StepResult Trainer::Impl::run_step(const Batch& batch) {
  const int64_t taken = steps_taken_++;
  const int64_t end = options_.profile ? options_.profile->start + options_.profile->steps : 0;
  const bool observed = options_.profile && taken >= options_.profile->start && taken < end;
  if (!observed) return session_.train_program().run(batch, step_);
  launch_trace_.begin_step(step_);
  session_.executor().observe(launch_trace_.observer());
  const StepResult result = session_.train_program().run(batch, step_);
  session_.executor().observe({});
  if (taken + 1 == end || step_ + 1 == p().num_train_steps) {
    launch_trace_.write(directory_ / "trace.json.gz");
    console_.say(fmt::format("{} holds the times of {} steps; it opens in ui.perfetto.dev",
                             (directory_ / "trace.json.gz").string(),
                             taken + 1 - options_.profile->start));
  }
  return result;
}

void Trainer::Impl::check_health(const StepResult& result) {
  if (!result.applied) {
    log_->event("skip", step_);
    console_.say(fmt::format("step {} skipped: loss {}, gradient norm {}", step_, result.loss,
                             result.grad_norm));
    const int64_t limit = session_.task().learner().hparams().max_skipped_in_a_row;
    if (limit > 0 && result.skipped_in_a_row >= limit)
      fail(
          "{} steps in a row were skipped, the last with loss {} and gradient norm {}; lower the "
          "learning rate, or look at the batches (max_skipped_in_a_row)",
          result.skipped_in_a_row, result.loss, result.grad_norm);
  } else if (!std::isfinite(result.loss)) {
    fail(
        "the loss is {} at step {}, and skip_nonfinite_steps is off; lower the learning rate, or "
        "go back to an earlier checkpoint",
        result.loss, step_);
  }
}

void Trainer::Impl::record(const StepResult& result, double input_wait) {
  const bool last = step_ == p().num_train_steps;
  const TrainLine line{.step = step_,
                       .loss = result.loss,
                       .learning_rate = result.learning_rate,
                       .grad_norm = result.grad_norm,
                       .tokens = step_ * session_.tokens_per_step(),
                       .tokens_per_sec = throughput_.tokens_per_second(),
                       .step_time = throughput_.step_seconds(),
                       .mfu = throughput_.mfu(),
                       .input_wait = input_wait,
                       .skipped = result.skipped,
                       .metrics = result.metrics,
                       .parameter_norms = result.parameter_norms};
  if (last || is_due(step_, p().metrics_interval_steps)) log_->train(line);
  if (last || is_due(step_, p().summary_interval_steps)) log_->summarise(line);
  console_.progress({.step = step_,
                     .num_steps = p().num_train_steps,
                     .loss = result.loss,
                     .tokens_per_second = throughput_.smooth_tokens_per_second(),
                     .mfu = throughput_.smooth_mfu(),
                     .seconds_left = throughput_.seconds_for(p().num_train_steps - step_)});
}

void Trainer::Impl::evaluate() {
  const std::map<std::string, double> metrics = session_.evaluate();
  if (metrics.empty()) return;
  log_->eval(step_, metrics);
  std::string text = fmt::format("step {}", step_);
  for (const auto& [name, value] : metrics) text += fmt::format("  {} {:.4f}", name, value);
  console_.say(text);
  if (!p().save_keep_best.empty()) saver_->set_metric(step_, metrics.at(p().save_keep_best));
  stop_reason_ = early_stopper_.observe(metrics);
}

void Trainer::Impl::save() {
  if (step_ == saved_step_ || step_ == 0) return;
  const InputState input = session_.input().state();
  CheckpointInfo info{.step = step_,
                      .seed = static_cast<uint64_t>(p().seed),
                      .input_position = input.position,
                      .input_extra = input.extra,
                      .hparams = hparams_toml_,
                      .graph_hash = graph_hash_};
  if (!stop_reason_.empty()) info.input_extra[kStopReason] = stop_reason_;
  info.input_extra[kBestMetric] = fmt::format("{}", early_stopper_.state().best);
  info.input_extra[kEvalsSinceBest] = fmt::format("{}", early_stopper_.state().evals_since_best);
  saver_->save(info, checkpoint_arrays(session_.executor()));
  saved_step_ = step_;
}

void Trainer::Impl::report_saves() {
  for (const CheckpointSaver::Saved& saved : saver_->take_saved())
    log_->event("save", saved.step, {{"bytes", saved.bytes}, {"seconds", saved.seconds}});
}

void Trainer::Impl::finish() {
  save();
  saver_->wait();
  report_saves();
  log_->event("done", step_);
  if (!stop_reason_.empty()) console_.say("stopped early: " + stop_reason_);
  console_.say(fmt::format("done: {} steps in {}", step_, directory_.string()));
  if (LogitsProgram* logits = session_.logits_program()) {
    console_.say("\nA sample of what it has learnt:\n");
    console_.say(printable(sample_text(*logits, session_.input(), p().sample)));
  }
}

Trainer::Trainer(const ExperimentConfig& config, const RunOptions& options, Device& device)
    : impl_(std::make_unique<Impl>(config, options, device)) {}
Trainer::~Trainer() = default;
int Trainer::run() { return impl_->run(); }

}  // namespace tessera
