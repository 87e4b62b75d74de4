// SPDX-License-Identifier: Apache-2.0
#include "tasks/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/text.h"
#include "core/passes/layout_warnings.h"
#include "core/runtime/checkpoint_saver.h"
#include "tasks/broken_documents.h"
#include "tasks/check_rules.h"
#include "tasks/console.h"
#include "tasks/deadline.h"
#include "tasks/decode/decode_run.h"
#include "tasks/early_stopper.h"
#include "tasks/eval/eval_run.h"
#include "tasks/eval/eval_table.h"
#include "tasks/interop/export.h"
#include "tasks/interop/import.h"
#include "tasks/line_log.h"
#include "tasks/loop_state.h"
#include "tasks/model_state.h"
#include "tasks/plan_report.h"
#include "tasks/restore_newest.h"
#include "tasks/run_log.h"
#include "tasks/run_start.h"
#include "tasks/session.h"
#include "tasks/stall_watch.h"
#include "tasks/step_runner.h"
#include "tasks/stop_signal.h"
#include "tasks/throughput.h"
#include "tasks/united_state.h"
#include "tasks/weight_table.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

// Processes agree about saving beside the steps; those have channel 0.
constexpr uint64_t kSavingChannel = 1;

OnDamage on_damage(const RunOptions& options) {
  if (options.checkpoint.kind != CheckpointChoice::Kind::kAutoFallback) return OnDamage::kFail;
  return options.dry_run ? OnDamage::kFallBackReadOnly : OnDamage::kFallBack;
}

}  // namespace

struct Trainer::Impl final : BaseRun {
  Impl(const ExperimentConfig& config, const RunOptions& options,
       const std::vector<Device*>& devices, Processes& processes);
  int run() override;

 private:
  void begin();
  void check_metric(std::string_view field, const std::string& metric) const;
  void start_from(const InitFrom& other);
  void go_on_from(const RestoredState& restored);
  void introduce();
  void warn_of_layouts();
  int train();
  void open_logs();
  // What all processes know before any begins a step.
  struct Outlook {
    int signal = 0;          // That some process got; 0: none.
    bool has_batch = false;  // That some process has rows for the step.
  };
  Outlook agreed_outlook(const StopSignal& stop);
  void leave(int signal);
  void train_step(Clock::time_point begin, bool has_batch);
  void check_health(const StepResult& result);
  void record(const StepResult& result, double input_wait);
  void evaluate();
  void save();
  void report_saves();
  void finish();

  const TrainHParams& p() const { return session_.train(); }
  bool complete() const { return step_ >= p().num_train_steps || !stop_reason_.empty(); }

  RunOptions options_;
  Device& device_;  // The first; the others are like it.
  Processes& processes_;
  fs::path directory_;
  std::unique_ptr<RunLock> lock_;  // Of whoever writes: null unless process 0 of a training run.
  std::string hparams_toml_;
  Session session_;
  Throughput throughput_;
  EarlyStopper early_stopper_;
  BrokenDocumentsReport broken_documents_;
  CheckpointStore store_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<RunLog> log_;  // Of a process other than the first it records nothing.
  Console console_;
  StepRunner runner_;
  int64_t step_ = 0;         // Steps done.
  int64_t saved_step_ = -1;  // Of the last checkpoint.
  int64_t damaged_ = 0;      // Checkpoints that were passed over at the start.
  std::string stop_reason_;  // Why to end before num_train_steps; empty: go on.
  std::string graph_hash_;   // Of the training step as traced.
};

Trainer::Impl::Impl(const ExperimentConfig& config, const RunOptions& options,
                    const std::vector<Device*>& devices, Processes& processes)
    : options_(options),
      device_(*devices.at(0)),
      processes_(processes),
      directory_(options.job_log_dir),
      lock_(lock_run(options, processes)),
      hparams_toml_(settle_run(config, options, processes)),
      session_(config,
               {.run_directory = directory_,
                .devices = options.devices,
                .allocates = options.mode != RunMode::kPlan,
                .on_stage = graph_dumper(options_, processes)},
               devices, processes),
      throughput_(session_.tokens_per_step(), model_flops(session_.train_graph()), device_,
                  devices_at_once(options, processes)),
      early_stopper_(p().early_stopping),
      store_(directory_ / "checkpoints"),
      console_(options.verbosity == Verbosity::kSilent || !processes.is_first()
                   ? Console::Mode::kSilent
                   : Console::detect()),
      runner_(session_, options.profile, directory_ / "trace.json.gz", console_) {
  begin();
}

void Trainer::Impl::begin() {
  check_metric("early_stopping.metric", p().early_stopping.metric);
  check_metric("save_keep_best", p().save_keep_best);
  graph_hash_ = graph_hash(session_.train_graph());
  if (options_.mode == RunMode::kPlan) return;
  const auto restored = restore_newest(session_.executor(), store_, processes_, on_damage(options_),
                                       [this](const std::string& line) { console_.say(line); });
  if (restored) {
    go_on_from(*restored);
  } else {
    initialise_state(session_.executor(), session_.task().model().parameters(),
                     static_cast<uint64_t>(p().seed), options_.threads);
    if (!p().init_from.directory.empty()) start_from(p().init_from);
  }
  if (options_.mode == RunMode::kTrain && processes_.is_first())
    write_plan_files(directory_, session_);
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
  const std::vector<std::string> names = session_.evaluation().metric_names();
  if (std::find(names.begin(), names.end(), metric) == names.end())
    fail("task.train.{}: evaluation gives no '{}'{}; it gives {}", field, metric,
         did_you_mean(metric, names), fmt::join(names, ", "));
}

void Trainer::Impl::go_on_from(const RestoredState& restored) {
  const CheckpointInfo& info = restored.info;
  if (options_.mode == RunMode::kTrain) {
    const LoopState state = loop_state_of(info);
    const std::string mesh = session_.mesh().text();
    // With another configuration it is asked to go on differently.
    if (info.hparams == hparams_toml_) stop_reason_ = state.stop_reason;
    if (!state.mesh.empty() && state.mesh != mesh) {
      console_.say(
          fmt::format("note: step {} was saved on mesh {}; on {} losses may differ by rounding",
                      info.step, state.mesh, mesh));
    } else if (info.hparams == hparams_toml_ && info.graph_hash != graph_hash_) {
      console_.say("note: this build computes a step in another way than the one that saved step " +
                   std::to_string(info.step) + "; losses may differ by rounding");
    }
    early_stopper_.restore(state.early_stopper);
    // Imported weights come without a place in the input: it begins.
    if (state.input.position > 0 || !state.input.extra.empty())
      session_.input().restore(state.input);
    broken_documents_.restore(state.input);
    session_.evaluation().restore(state.evals);
  }
  step_ = info.step;
  saved_step_ = info.step;
  damaged_ = restored.damaged;
}

void Trainer::Impl::introduce() {
  console_.say(fmt::format("{} in {}", options_.experiment, directory_.string()));
  const int64_t devices = session_.mesh().num_devices();
  const std::string device = fmt::format("{}; {}, which mfu is measured against",
                                         device_.description(), peak_text(device_));
  console_.say(devices == 1 ? device
                            : fmt::format("{} devices (mesh {}), each {}", devices,
                                          session_.mesh().text(), device));
  if (!session_.remark().empty()) console_.say(session_.remark());
  console_.say(weight_table(session_.task().model().parameters()));
  console_.say(plan_summary(make_plan(session_)));
  warn_of_layouts();
}

void Trainer::Impl::warn_of_layouts() {
  for (const std::string& warning : layout_warnings(session_.train_graph(), session_.mesh()))
    console_.say("warning: " + warning);
  for (const std::string& warning :
       idle_mesh_axes(session_.rules(), session_.mesh(), session_.train_graph()))
    console_.say("warning: " + warning);
}

int Trainer::Impl::run() {
  if (options_.mode == RunMode::kPlan) {
    warn_of_layouts();
    console_.say(plan_text(make_plan(session_)));
    return 0;
  }
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

void Trainer::Impl::open_logs() {
  log_ = processes_.is_first() ? std::make_unique<RunLog>(directory_, step_)
                               : std::make_unique<RunLog>();
  log_->event("start", step_,
              {{"devices", session_.mesh().num_devices()}, {"processes", processes_.size()}});
  if (saved_step_ < 0) return;
  if (damaged_ > 0) {
    log_->event("restore", step_, {{"damaged", damaged_}});
  } else {
    log_->event("restore", step_);
  }
  console_.say(fmt::format("restored step {}", step_));
}

int Trainer::Impl::train() {
  const StopSignal stop;
  const StallWatch watch(stop, processes_, session_.fabric());
  open_logs();
  saver_ = std::make_unique<CheckpointSaver>(
      store_,
      RetentionPolicy{.newest = p().save_max_to_keep,
                      .every_steps = p().save_keep_every_steps,
                      .best = !p().save_keep_best.empty()},
      std::make_unique<Processes>(processes_.transport(),
                                  std::chrono::seconds(p().collective_timeout_seconds),
                                  kSavingChannel));
  // Arrays are saved from where a step computes with them.
  session_.executor().guard_writes(
      [reads = saver_->reads()](std::span<const std::byte> bytes) { reads->await(bytes); });
  for (const auto& [step, value] : values_in_log(directory_ / "metrics.jsonl", p().save_keep_best))
    saver_->set_metric(step, value);
  while (!complete()) {
    // Pax's order: save the state before the step, train, evaluate, stop early.
    if (is_due(step_, p().save_interval_steps)) save();
    const Clock::time_point begin = Clock::now();
    const Outlook outlook = agreed_outlook(stop);
    if (outlook.signal != 0) {
      leave(outlook.signal);
      return 0;
    }
    train_step(begin, outlook.has_batch);
    if (is_due(step_, p().eval_interval_steps) || step_ == p().num_train_steps) evaluate();
    if (session_.samples() && (is_due(step_, p().sample.interval_steps) || complete()))
      report_samples(*session_.samples(), step_, *log_, console_);
    report_saves();
  }
  finish();
  return 0;
}

// Between steps. What keeps a process from its next batch is known to all before any begins a step
// that it would wait in for ever.
Trainer::Impl::Outlook Trainer::Impl::agreed_outlook(const StopSignal& stop) {
  const int64_t has_batch = session_.input().await_next() ? 1 : 0;
  const int64_t agreed =
      processes_.agree_max(2 * stop.requested() + has_batch, fmt::format("step {}", step_ + 1));
  // Of two processes the one with a signal is heard; then it does not matter who has a batch.
  return {static_cast<int>(agreed / 2), agreed % 2 == 1};
}

// Saves and says how to go on. Whoever stops a run waits only so long before it is killed.
void Trainer::Impl::leave(int signal) {
  const Deadline deadline(std::chrono::seconds(p().stop_deadline_seconds), [this] {
    fmt::print(stderr,
               "runexp: told to stop, but step {} was not saved within {} s "
               "(task.train.stop_deadline_seconds); what was saved before remains\n",
               step_, p().stop_deadline_seconds);
    if (processes_.transport()) processes_.transport()->abort(1);
    std::_Exit(1);
  });
  save();
  saver_->wait();
  report_saves();
  log_->event("preempt", step_, runner_.traffic(options_.devices));
  console_.say(step_ == 0 ? fmt::format("{}: no step was taken yet", StopSignal::name(signal))
                          : fmt::format("{}: saved step {}; the same command goes on from there",
                                        StopSignal::name(signal), step_));
}

void Trainer::Impl::train_step(Clock::time_point begin, bool has_batch) {
  if (!has_batch)
    fail(
        "the training input ended after {} batches, before num_train_steps={}; let it repeat, or "
        "train for fewer steps",
        step_, p().num_train_steps);
  std::optional<Batch> batch = session_.input().get_next();
  if (!batch) batch = padding_batch(session_.input().specification());
  const double input_wait = session_.input().take_wait_seconds();
  const StepResult result = runner_.run(*batch, step_);
  ++step_;
  throughput_.add_step(seconds_since(begin));
  session_.input().recycle(std::move(*batch));
  record(result, input_wait);
  check_health(result);
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
  const EvalReport report = session_.evaluation().run(processes_);
  if (report.metrics.empty()) return;
  log_->eval(step_, report.metrics);
  say_evaluation(step_, report, &console_);
  if (!p().save_keep_best.empty()) saver_->set_metric(step_, report.metrics.at(p().save_keep_best));
  stop_reason_ =
      processes_.broadcast(early_stopper_.observe(report.metrics), "whether to stop early");
}

void Trainer::Impl::save() {
  if (step_ == saved_step_ || step_ == 0) return;
  CheckpointInfo info{.step = step_,
                      .seed = static_cast<uint64_t>(p().seed),
                      .hparams = hparams_toml_,
                      .graph_hash = graph_hash_};
  const InputState input = united_state(session_.input().state(), processes_);
  broken_documents_.tell(input, step_, *log_, console_);
  std::map<std::string, InputState> evals;
  for (const auto& [dataset, state] : session_.evaluation().states())
    evals[dataset] = united_state(state, processes_);
  put_loop_state({.input = input,
                  .evals = std::move(evals),
                  .stop_reason = stop_reason_,
                  .early_stopper = early_stopper_.state(),
                  .mesh = session_.mesh().text()},
                 &info);
  saver_->save(info, checkpoint_arrays(session_.executor()));
  saved_step_ = step_;
}

void Trainer::Impl::report_saves() {
  for (const CheckpointSaver::Saved& saved : saver_->take_saved())
    log_->event("save", saved.step,
                {{"bytes", saved.bytes}, {"seconds", saved.seconds}, {"stall", saved.stall}});
}

void Trainer::Impl::finish() {
  save();
  saver_->wait();
  report_saves();
  log_->event("done", step_, runner_.traffic(options_.devices));
  if (!stop_reason_.empty()) console_.say("stopped early: " + stop_reason_);
  console_.say(fmt::format("done: {} steps in {}", step_, directory_.string()));
}

Trainer::Trainer(const ExperimentConfig& config, const RunOptions& options,
                 const std::vector<Device*>& devices, Processes& processes) {
  switch (options.mode) {
    case RunMode::kDecode:
      run_ = std::make_unique<DecodeRun>(config, options, devices, processes);
      break;
    case RunMode::kExport:
      run_ = export_run(config, options, processes);
      break;
    case RunMode::kImport:
      run_ = import_run(config, options, devices, processes);
      break;
    case RunMode::kEval:
      run_ = std::make_unique<EvalRun>(config, options, devices, processes);
      break;
    case RunMode::kTrain:
    case RunMode::kPlan:
      run_ = std::make_unique<Impl>(config, options, devices, processes);
      break;
  }
}
Trainer::~Trainer() = default;
int Trainer::run() { return run_->run(); }

}  // namespace tessera
