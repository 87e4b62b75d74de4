// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/computation.h"
#include "core/compile/cost.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/run/eval/eval_output.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/log/run_log.h"
#include "tasks/run/log/throughput.h"
#include "tasks/run/report/report.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/run_health.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

// The channel on which ProcessGroup agrees about saving; steps use channel 0.
constexpr int kSavingChannel = 1;

// Used like a signal's number: the directory was moved or removed.
constexpr int kDirectoryChanged = 1000;

class Trainer final : public BaseRun {
 public:
  Trainer(const RunContext& context, const TrainOptions& options)
      : setting_(context.setting),
        options_(options),
        device_(*context.devices.at(0)),
        processes_(context.processes),
        directory_(setting_.job_log_dir),
        lock_(lock_run(setting_, processes_)),
        hparams_toml_(prepare_run(context.config, setting_, processes_)),
        guard_(guard_run(setting_, lock_.get())),
        search_(context.devices),
        session_(context.config,
                 {.run_directory = directory_,
                  .input_directory = setting_.input_directory,
                  .devices = setting_.devices,
                  .keeps_tokenizer = !setting_.dry_run,
                  .starts_over = setting_.restart,
                  .on_stage = graph_dumper(options.dump_graph, directory_, processes_),
                  .inspects = options.inspect_interval_steps > 0,
                  .launch_costs = options.launch_costs},
                 search_.in_order(), processes_),
        phase_(&session_.sizes().at(0)),
        throughput_(throughput_of(0)),
        early_stopper_(p().early_stopping),
        health_(p().num_train_steps, session_.task().learner().hparams()),
        console_(console_of(setting_, processes_)),
        runner_(session_, options.profile, files() / "trace.json.gz", console_, search_) {
    begin();
  }

  int run() override {
    introduce_run(fmt::format("{} in {}", setting_.experiment, directory_.string()), session_,
                  options_.note, device_, console_);
    if (complete() && interrupted_.empty()) {
      console_.info(fmt::format("{} is complete: {} steps done{}{}", directory_.string(), step_,
                                stop_reason_.empty() ? "" : "; ", stop_reason_));
      return 0;
    }
    if (setting_.dry_run) {
      console_.info("dry run: ready to take step " + std::to_string(step_ + 1));
      return 0;
    }
    open_logs();
    try {
      train();
      write_report();
      return 0;
    } catch (const std::exception& error) {
      if (drawing_) drawing_->cancel();
      const std::string reason = guard_->shown(error_text(error));
      note_failure(reason);
      if (dynamic_cast<const DirectoryLost*>(&error) != nullptr) throw;
      guard_->expect_in_place();  // Or that is the reason.
      if (report_) report_->write();
      throw Error(reason);
    }
  }

 private:
  void begin() {
    require_metrics(session_);
    computation_ = Computation(session_.train_graph()).record();
    const OnDamage on_damage = !options_.falls_back ? OnDamage::kFail
                               : setting_.dry_run   ? OnDamage::kFallBackReadOnly
                                                    : OnDamage::kFallBack;
    std::optional<RestoredState> restored;
    // With --restart a dry run must ignore the existing run, which it cannot set aside.
    if (!setting_.dry_run || !setting_.restart)
      restored = restore_newest(session_.executor(), session_.task().model().parameters(),
                                CheckpointStore(directory_ / "checkpoints"), processes_, on_damage,
                                [this](const std::string& line) { console_.info(line); });
    if (restored) {
      resume_from(*restored);
    } else {
      initialise_state(session_.executor(), session_.task().model().parameters(),
                       static_cast<uint64_t>(p().seed), setting_.threads);
      if (!p().init_from.directory.empty()) take_weights(session_, p().init_from, console_);
    }
    if (!setting_.dry_run && processes_.is_first()) {
      keep_config(hparams_toml_, setting_);
      session_.write_plan(directory_);
      drawing_ = std::make_unique<GraphDrawing>(session_.train_graph(), directory_ / "graph");
      if (!drawing_->note().empty()) console_.info("note: " + drawing_->note());
    }
  }

  void resume_from(const RestoredState& restored) {
    const CheckpointInfo& info = restored.info;
    const LoopState state = loop_state_of(info);
    const std::string change = describe_change(info.hparams, hparams_toml_);
    // The configuration may have changed what ends a run.
    if (change.empty()) stop_reason_ = state.stop_reason;
    for (const std::string& line :
         check_resume(info, state, session_.mesh().text(), change, session_.task(), setting_))
      console_.info(line);
    early_stopper_.restore(state.early_stopper);
    interrupted_ = state.interrupted;
    // Imported weights have no input position: the input starts at its beginning.
    if (state.input.position > 0 || !state.input.cursors.empty())
      session_.input().restore(state.input);
    if (session_.sizes().are_given() && session_.input().state().position != info.step)
      fail(
          "task.train.phases: the run had another global_batch_size before step {}; phases need "
          "the size that it began with",
          info.step);
    corrupt_records_.restore(state.input);
    session_.evaluation().restore(state.evals);
    step_ = saved_step_ = info.step;
    damaged_ = restored.damaged;
  }

  void train() {
    const StopSignal stop;
    auto saving = std::make_unique<ProcessGroup>(
        processes_.transport(), std::chrono::seconds(p().collective_timeout_seconds),
        kSavingChannel);
    const StallProbes::Registration probe = processes_.stall_probes().add(
        [saving = saving.get()](auto least) { return saving->stall_probes().stalled(least); });
    const RetentionPolicy retention{.newest = p().save_max_to_keep,
                                    .every_steps = p().save_keep_every_steps,
                                    .best = !p().save_keep_best.empty()};
    saver_ = std::make_unique<CheckpointSaver>(CheckpointStore(files() / "checkpoints"), retention,
                                               std::move(saving));
    // A step updates no array that is still to be saved.
    session_.executor().guard_writes(
        [reads = saver_->reads()](const DeviceBuffer& buffer) { reads->await(buffer); });
    if (!p().save_keep_best.empty())
      for (const auto& [step, value] :
           values_in_log(directory_ / "metrics.jsonl", p().save_keep_best))
        saver_->set_metric(step, value);
    if (step_until_complete(stop)) finish();
  }

  void open_logs() {
    log_ = processes_.is_first()
               ? open_run_log(setting_, p(), hparams_toml_, files(), step_, console_)
               : std::make_unique<RunLog>();
    if (processes_.is_first()) report_.emplace(directory_, console_);
    log_->before_end([this] { write_report(); });
    log_->event("start", step_,
                {{"devices", session_.mesh().num_devices()},
                 {"processes", processes_.size()},
                 {"metrics_interval_steps", static_cast<double>(p().metrics_interval_steps)}},
                {{"build", setting_.code.build},
                 {"plugins", setting_.code.plugins},
                 {"revision", setting_.code.revision}});
    if (saved_step_ < 0) return;
    std::map<std::string, double> details;
    if (damaged_ > 0) details["damaged"] = static_cast<double>(damaged_);
    log_->event("restore", step_, details);
    console_.info(fmt::format("restored step {}", step_));
  }

  // False if a signal stopped the run before.
  bool step_until_complete(const StopSignal& stop) {
    if (!interrupted_.empty()) {
      if (has_stopped(use_state(stop))) return false;
      saved_step_ = -1;  // The saved state is that before what was interrupted.
    }
    while (!complete()) {
      // Pax's order: save the state before the step, train, evaluate, stop early.
      if (is_due(started(), p().save_interval_steps)) save_in_place();
      if (has_stopped(start_step(stop))) return false;
      finish_steps(needs_state_of(started()) ? 0 : runner_.most_under_way());
      if (step_ == started() && has_stopped(use_state(stop))) return false;
      report_saves();
      log_lost_console();
      if (drawing_ && drawing_->is_done()) drawing_.reset();
      if (report_) report_->refresh();
    }
    return true;
  }

  void write_report() {
    drawing_.reset();  // The report shows the drawing.
    if (report_ && look_at_directory() == 0) report_->write();
  }

  void note_failure(const std::string& reason) noexcept {
    try {
      log_lost_console();
      log_->event("failed", step_, reason);
    } catch (const std::exception&) {  // It must not hide the failure itself.
    }
  }

  // Only the log can report that the run continues without a console.
  void log_lost_console() {
    if (console_.loss().empty() || console_loss_logged_) return;
    console_loss_logged_ = true;
    log_->event("console_lost", step_, console_.loss());
  }

  // Whether saving, evaluation or sampling reads the state after this step, before the next.
  bool needs_state_of(int64_t step) {
    return step == p().num_train_steps || is_due(step, p().save_interval_steps) ||
           is_due(step, p().eval_interval_steps) ||
           (session_.samples() && is_due(step, p().sample.interval_steps));
  }

  // All steps that were started are finished. Returns the stop signal that interrupts it, or 0.
  int use_state(const StopSignal& stop) {
    const bool evaluates = is_due(step_, p().eval_interval_steps) || step_ == p().num_train_steps;
    const bool has_evaluated = std::exchange(interrupted_, "evaluation") == "samples";
    if (evaluates && !has_evaluated)
      if (const int signal = evaluate(stop); signal != 0) return signal;
    interrupted_ = "samples";
    if (session_.samples() && (is_due(step_, p().sample.interval_steps) || complete()))
      if (const int signal = session_.samples()->report(step_, stop, *log_, console_); signal != 0)
        return signal;
    interrupted_.clear();
    return 0;
  }

  // The directory that a run writes to.
  const std::filesystem::path& files() const { return guard_ ? guard_->held() : directory_; }

  // 0, or kDirectoryChanged in this process.
  int look_at_directory() {
    return guard_->look(log_->damage()) == RunGuard::Finding::kNone ? 0 : kDirectoryChanged;
  }
  [[noreturn]] void leave_directory() {
    guard_->leave(processes_, step_, [this] {
      save();
      saver_->wait();
    });
  }
  // A collective call.
  void save_in_place() {
    if (processes_.all_reduce_max(look_at_directory(), "looking at the directory") != 0)
      leave_directory();
    save();
  }

  // The agreement of all processes before a step.
  struct Outlook {
    int signal = 0;  // A stop signal that some process received, or kDirectoryChanged; 0: none.
    bool has_batch = false;  // Whether some process has rows for the step.
  };
  // All processes learn that one cannot make another step before any would wait for it in a step.
  Outlook agreed_outlook(const StopSignal& stop) {
    int64_t has_batch = 0;
    try {
      has_batch = session_.input().await_next() ? 1 : 0;
    } catch (const Error&) {  // Its store does not answer, say: the state is saved all the same.
      if (stop.requested() == 0) throw;
    }
    const int signal = std::max(look_at_directory(), stop.requested());
    const int64_t agreed =
        processes_.all_reduce_max(2 * signal + has_batch, fmt::format("step {}", started() + 1));
    // A signal takes precedence over the end of the input.
    return {static_cast<int>(agreed / 2), agreed % 2 == 1};
  }

  // Whether all processes have agreed on a stop signal: then saves, and prints how to resume. The
  // sender of the signal may kill this process soon.
  bool has_stopped(int signal) {
    if (signal == 0) return false;
    finish_steps(0);
    if (signal == kDirectoryChanged) leave_directory();
    StopSignal::heed();
    const Deadline deadline = deadline_of_save(step_, p().stop_deadline_seconds, processes_);
    if (drawing_) drawing_->cancel();
    save_in_place();
    saver_->wait();
    report_saves();
    log_lost_console();
    log_->event("preempt", step_, runner_.traffic(setting_.devices));
    console_.info(fmt::format(
        "{}: {}", StopSignal::name(signal),
        step_ == 0 ? "stopped before the first step"
                   : fmt::format("saved step {}; run the same command to resume", step_)));
    return true;
  }

  Throughput throughput_of(int64_t step) const {
    return {session_.sizes().at(step).tokens, model_flops(session_.train_graph(step)), device_,
            devices_at_once(setting_, processes_)};
  }

  // Steps of different programs are not under way together: they share memory.
  void enter_phase() {
    const TrainProgram* const program = &session_.train_program(started());
    if (std::exchange(program_, program) != program) finish_steps(0);
    const StepSize& phase = session_.sizes().at(started());
    if (std::exchange(phase_, &phase) == &phase) return;
    throughput_ = throughput_of(started());
    console_.info(fmt::format("step {}: {}", started() + 1, phase.where));
  }

  // Starts the next step, unless there is a stop signal, which it returns. If starting fails,
  // earlier steps are finished first: one may be the cause; if not, their results are reported.
  int start_step(const StopSignal& stop) try {
    enter_phase();
    runner_.begin_step();
    const Outlook outlook = agreed_outlook(stop);
    if (outlook.signal != 0) return outlook.signal;
    if (!outlook.has_batch)
      fail(
          "the training input ended after {} batches, before num_train_steps={}; set repeat=true "
          "of the input, or train for fewer steps",
          started(), p().num_train_steps);
    std::optional<Batch> batch = session_.input().get_next();
    if (!batch)
      session_.sizes().cut(batch.emplace(padding_batch(session_.input().specification())), *phase_);
    runner_.start(std::move(*batch), started(), session_.input().take_wait_seconds());
    return 0;
  } catch (...) {
    finish_steps(0);
    throw;
  }

  // Finishes steps until at most `left` are under way.
  void finish_steps(size_t left) {
    while (runner_.under_way() > left) {
      const FinishedStep finished = runner_.finish();
      ++step_;
      throughput_.add_step(finished.seconds);
      record(finished.result, finished.input_wait);
      if (finished.skipped_batch && kept_batches_++ < kMostKeptBatches)
        console_.info(guard_->shown(
            keep_batch(*finished.skipped_batch, step_, processes_.rank(), files() / "skipped")));
      health_.check(finished.result, step_, finished.nonfinite, *log_, console_);
    }
  }

  void record(const StepResult& result, double input_wait) {
    const bool last = step_ == p().num_train_steps;
    TrainLine line{.step = step_,
                   .loss = result.loss,
                   .learning_rate = result.learning_rate,
                   .rule_rates = result.rule_rates,
                   .grad_norm = result.grad_norm,
                   .tokens = session_.sizes().tokens_before(step_),
                   .tokens_per_sec = throughput_.tokens_per_second(),
                   .step_time = throughput_.step_seconds(),
                   .mfu = throughput_.mfu(),
                   .input_wait = input_wait,
                   .skipped = result.skipped,
                   .metrics = result.metrics,
                   .histograms = result.histograms,
                   .parameter_norms = result.parameter_norms};
    if (last || is_due(step_, p().metrics_interval_steps)) {
      line.metrics["process_memory"] = static_cast<double>(resident_bytes());
      log_->train(line);
    }
    if (last || is_due(step_, p().summary_interval_steps)) log_->summarise(line);
    log_->weight_histograms(step_, result.weight_histograms);
    if (is_due(step_, options_.inspect_interval_steps))
      report_inspected(result.inspected, step_, *log_, console_);
    console_.progress({.step = step_,
                       .num_steps = p().num_train_steps,
                       .loss = result.loss,
                       .tokens_per_second = throughput_.smooth_tokens_per_second(),
                       .mfu = throughput_.smooth_mfu(),
                       .seconds_left = throughput_.seconds_for(p().num_train_steps - step_)});
  }

  // Returns the stop signal that interrupts it, or 0.
  int evaluate(const StopSignal& stop) {
    const EvalReport report = session_.evaluation().run(processes_, monitor_of(stop, console_));
    if (report.metrics.empty()) return report.signal;
    log_->eval(step_, report.metrics, report.histograms);
    print_evaluation(step_, report, &console_);
    if (const auto problem = undefined_loss(report.metrics))
      fail(
          "the run has failed: {} after step {}; lower the learning rate, or resume from an "
          "earlier checkpoint",
          *problem, step_);
    if (!p().save_keep_best.empty())
      saver_->set_metric(step_, report.metrics.at(p().save_keep_best));
    stop_reason_ =
        processes_.broadcast(early_stopper_.observe(report.metrics), "whether to stop early");
    return 0;
  }

  void save() {
    if (step_ == saved_step_ || step_ == 0) return;
    CheckpointInfo info{
        .step = step_, .seed = static_cast<uint64_t>(p().seed), .hparams = hparams_toml_};
    const InputState input = merged_input_states(session_.input().state(), processes_);
    corrupt_records_.report(input, step_, *log_, console_);
    std::map<std::string, InputState> evals;
    for (const auto& [dataset, state] : session_.evaluation().states())
      evals[dataset] = merged_input_states(state, processes_);
    put_loop_state({.input = input,
                    .evals = std::move(evals),
                    .stop_reason = stop_reason_,
                    .early_stopper = early_stopper_.state(),
                    .mesh = session_.mesh().text(),
                    .code = setting_.code,
                    .computation = computation_,
                    .interrupted = interrupted_},
                   &info);
    saver_->save(info, checkpoint_arrays(session_.executor()));
    saved_step_ = step_;
  }

  void report_saves() {
    for (const CheckpointSaver::Saved& saved : saver_->take_saved()) {
      log_->event("save", saved.step,
                  {{"bytes", saved.bytes}, {"seconds", saved.seconds}, {"stall", saved.stall}});
      if (!saved.remains.empty()) console_.info(guard_->shown("warning: " + saved.remains));
    }
  }

  void finish() {
    health_.check_end(step_);
    save_in_place();
    saver_->wait();
    report_saves();
    if (!stop_reason_.empty()) console_.info("stopped early: " + stop_reason_);
    console_.info(fmt::format("done: {} steps in {}", step_, directory_.string()));
    log_lost_console();
    log_->event("done", step_, runner_.traffic(setting_.devices));  // The last line.
  }

  const TrainHParams& p() const { return session_.train(); }
  int64_t started() const { return step_ + static_cast<int64_t>(runner_.under_way()); }
  bool complete() const { return step_ >= p().num_train_steps || !stop_reason_.empty(); }

  RunSetting setting_;
  TrainOptions options_;
  Device& device_;  // The first device; the others are of the same kind.
  ProcessGroup& processes_;
  std::filesystem::path directory_;
  std::unique_ptr<RunLock> lock_;  // Null in processes other than process 0.
  std::string hparams_toml_;
  std::unique_ptr<RunGuard> guard_;
  NonfiniteSearch search_;  // The session runs on its devices.
  Session session_;
  const TrainProgram* program_ = nullptr;  // The program and the phase of the last step that was
  const StepSize* phase_;                  // started.
  Throughput throughput_;
  EarlyStopper early_stopper_;
  RunHealth health_;
  CorruptRecordsReport corrupt_records_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<RunLog> log_;  // Records nothing in processes other than process 0.
  Console console_;
  std::unique_ptr<GraphDrawing> drawing_;  // graph.svg
  std::optional<LiveReport> report_;       // In process 0.
  StepRunner runner_;
  int64_t step_ = 0;         // Steps done, and their results reported.
  int64_t saved_step_ = -1;  // Step of the last checkpoint.
  int64_t kept_batches_ = 0;
  int64_t damaged_ = 0;      // Damaged checkpoints that were skipped at the start.
  std::string stop_reason_;  // Why to end before num_train_steps; "": continue.
  std::string interrupted_;  // LoopState::interrupted
  std::string computation_;  // Computation::record() of the traced training step.
  bool console_loss_logged_ = false;
};

}  // namespace

std::unique_ptr<BaseRun> train_run(const RunContext& context, const TrainOptions& options) {
  return std::make_unique<Trainer>(context, options);
}

}  // namespace tessera
