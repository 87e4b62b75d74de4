// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/train_session.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/remat/remat.h"
#include "core/compile/spmd/layout_lint.h"
#include "core/graph/type.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/checked_input.h"
#include "layers/inspect.h"
#include "tasks/planner/prices/priced_launch.h"
#include "tasks/planner/step_digest.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/throughput.h"
#include "tasks/run/log/weight_table.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/session/step_checks.h"
#include "tasks/run/trackers/trackers.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/run_health.h"
#include "tasks/task/learner/path_patterns.h"

namespace tessera {
namespace {

constexpr std::string_view kVocabAxis = "vocab";
constexpr int64_t kMostBatchTokens = int64_t{1} << 28;  // Each takes some 20 bytes on the host.

// The smallest batch that the mesh can hold: one copy of the example per shard of the batch axis.
Batch copies_of_one_example(const TraceSetting& setting, const BaseInput& input) {
  const Type batch = apply_rules(setting.rules.activations, setting.mesh,
                                 make_type(DType::kI32, {{"batch", 0, {}}}));
  Batch specification = input.specification();
  for (auto& [name, array] : specification)
    array.shape[0] = setting.mesh.size_along(batch.axes[0].split);
  return specification;
}

// "its tokenizer is 'a' (f1), not 'b' (f2)"; "" if they are equal or one is unknown.
std::string tokenizer_difference(const Tokenizer* own, const Tokenizer* other) {
  if (own == nullptr || other == nullptr || own->fingerprint() == other->fingerprint()) return "";
  return fmt::format("its tokenizer is '{}' ({}), not '{}' ({})", own->name(), own->fingerprint(),
                     other->name(), other->fingerprint());
}

// Error if it takes weights with a row for each token, and the tokens are those of another
// tokenizer.
void check_taken_tokens(const Session& session, const std::filesystem::path& run,
                        const LoadedWeights& loaded) {
  const auto theirs = read_run_tokenizer(run);
  const std::string difference = tokenizer_difference(session.input().tokenizer(), theirs.get());
  if (difference.empty()) return;
  for (const Parameter& parameter : session.task().model().parameters().parameters())
    if (parameter.type.has(kVocabAxis) &&
        std::ranges::find(loaded.initial, parameter.path) == loaded.initial.end())
      fail(
          "input: {} of the weights that task.train.init_from takes; build its tokens with that, "
          "or leave out {} (ignore_rules)",
          difference, parameter.path);
}

const std::filesystem::path& directory_of_inputs(const SessionOptions& options) {
  return options.input_directory.empty() ? options.run_directory : options.input_directory;
}

}  // namespace

Session::Session(const ExperimentConfig& config, const SessionOptions& options,
                 const std::vector<Device*>& devices, ProcessGroup& processes)
    : ModelSession(config, options.allocates ? Purpose::kRunning : Purpose::kPlanning, devices,
                   options.devices, processes, options.run_directory) {
  open_inputs(config, options);
  compile(config, options);
  processes_.barrier("compiling the step");
}

Infeed Session::infeed(const StepSizes& sizes, const SessionOptions& options) const {
  for (const StepSize& size : sizes.phases()) {
    const ErrorContext where(size.where);
    if (options.allocates && size.tokens > kMostBatchTokens)
      fail("global_batch_size={} sequences of seq_len={} tokens are more than {} tokens", size.rows,
           size.seq_len, kMostBatchTokens);
  }
  Infeed infeed = process_infeed(sizes, mesh_, rules_, processes_.rank(), processes_.size(),
                                 options.allocates ? options.devices : 0);
  infeed.run_directory = directory_of_inputs(options);
  // Only process 0 may create a corpus snapshot.
  infeed.run_begun = !processes_.is_first() || run_has_begun(options.run_directory);
  return infeed;
}

OpenedInput Session::open_input(const Template<BaseInput>& input_tpl, const std::string& where,
                                const SessionOptions& options,
                                const std::vector<TrainPhase>& phases) {
  const ErrorContext context(where);
  std::unique_ptr<BaseInput> input = make_input(input_tpl);
  const Infeed rows = infeed(StepSizes(phases, *input), options);
  if (options.allocates) input->attach(rows);  // A plan needs no data.
  return {std::move(input), rows.rows, options.allocates};
}

void Session::open_inputs(const ExperimentConfig& config, const SessionOptions& options) {
  // Process 0 opens its training input first: it may create a snapshot that the others read.
  if (!processes_.is_first()) processes_.barrier("opening the inputs");
  input_ = std::make_unique<Prefetch>(
      open_input(config.input, "input", options, train().phases).input, train().prefetch_batches);
  sizes_.emplace(train().phases, *input_);
  evaluation_ = std::make_unique<Evaluation>(
      config, train(), [&](const Template<BaseInput>& input_tpl, const std::string& where) {
        return open_input(input_tpl, where, options);
      });
  if (processes_.is_first()) {
    if (options.allocates) check_tokenizers(options);
    const bool keeps = options.trains && options.allocates && options.keeps_tokenizer;
    if (keeps && input_->tokenizer() != nullptr)
      write_run_tokenizer(options.run_directory, *input_->tokenizer());
    processes_.barrier("opening the inputs");
  }
  if (!options.allocates) return;
  compare_data();
  evaluation_->require_labels(processes_);
}

// A run that has a checkpoint keeps the tokenizer of its model.
void Session::check_tokenizers(const SessionOptions& options) const {
  const std::filesystem::path& run = options.run_directory;
  std::unique_ptr<Tokenizer> kept;
  if (!options.starts_over && CheckpointStore(run / "checkpoints").newest())
    kept = read_run_tokenizer(run);
  const Tokenizer* const models = kept ? kept.get() : input_->tokenizer();
  const std::string kept_in =
      kept ? fmt::format(
                 " (kept in {0}/tokenizer; remove that file if the model is to learn another)",
                 run.string())
           : "";
  const auto check = [&](const BaseInput& input, const std::string& where) {
    const std::string difference = tokenizer_difference(input.tokenizer(), models);
    if (!difference.empty())
      fail("{}: {} of the model{}; build its tokens with that", where, difference, kept_in);
  };
  check(*input_, "input");
  for (const EvalDataset& dataset : evaluation_->datasets())
    check(dataset.input(), "eval_inputs." + dataset.name());
}

// Detects at once, not at the first checkpoint, that processes see different files under one path.
void Session::compare_data() const {
  const auto compare = [&](const BaseInput& input, const std::string& where) {
    const ErrorContext context(where);
    merged_input_states(input.state(), processes_);
  };
  compare(*input_, "input");
  for (const EvalDataset& dataset : evaluation_->datasets())
    compare(dataset.input(), "eval_inputs." + dataset.name());
}

Session::Step Session::make_step(const StepSize& size, int kind, const SessionOptions& options) {
  const ErrorContext where(size.where);
  const TraceSetting setting{.mesh = mesh_,
                             .rules = rules_,
                             .batch = global_specification(*input_, size),
                             .renews = (kind & kRenews) != 0,
                             .histograms = (kind & kHistograms) != 0};
  Step step{.graph = graph_of(*task_, "train_graph()", names::kLoss,
                              [&] { return task_->train_graph(setting); })};
  check_rules(rules_, step.graph);
  check_remat_names(parse_remat_policy(train().remat_policy), step.graph);
  CompileOptions compile;
  if (size.program == sizes_->main().program && kind == kPlain) compile.on_stage = options.on_stage;
  compile.communication = options.communication;
  compile.launch_seconds = schedule_seconds(options.launch_costs, mesh_);
  step.program = add_program(step.graph, compile);
  return step;
}

// Whether there are such steps: optimizers renew in steps n with n % interval == 0, histograms are
// counted in steps with (n + 1) % interval == 0.
bool Session::has_kind(int kind) const {
  const int64_t renewal = task_->learner().multi_optimizer().interval();
  const int64_t histograms = train().histogram_interval_steps;
  if ((kind & kRenews) != 0 && renewal <= 1) return false;
  if ((kind & kHistograms) != 0 && histograms == 0) return false;
  return kind != (kRenews | kHistograms) || std::gcd(renewal, histograms) == 1;
}

// One for each size of the batches, and others for steps that do more.
void Session::add_train_programs(const SessionOptions& options) {
  std::optional<InspectScope> inspecting;
  if (options.inspects) inspecting.emplace();
  for (const StepSize& size : sizes_->phases()) {
    if (size.program < steps_[kPlain].size()) continue;
    for (int kind = kPlain; kind < kKinds; ++kind)
      if (has_kind(kind))
        steps_[static_cast<size_t>(kind)].push_back(make_step(size, kind, options));
  }
  input_->prepare_with([bounds = lookup_bounds(train_graph()), name = input_->name(),
                        sizes = *sizes_](Batch& batch, int64_t number) {
    check_batch(batch, bounds, fmt::format("input '{}', batch {}", name, number));
    sizes.cut(batch, sizes.at(number));
  });
}

void Session::compile(const ExperimentConfig& config, const SessionOptions& options) {
  if (options.trains) add_train_programs(options);
  evaluation_->compile(*this, config, directory_of_inputs(options),
                       [&](Graph graph) { return add_program(std::move(graph)); });
  if (options.allocates) {
    TraceSetting setting{mesh_, rules_, {}};
    setting.batch = copies_of_one_example(setting, *input_);
    check_vocabulary(graph_of(*task_, "logits_graph()", names::kLogits,
                              [&] { return task_->logits_graph(setting, eval_weights()); }));
  }
  if (train().sample.length > 0 && options.trains && options.allocates)
    samples_ = std::make_unique<TrainingSamples>(*this, *input_);

  if (options.allocates) {
    const auto peak = [&](const StepSize& size) { return compiled_step(size).largest().use.peak; };
    const ErrorContext where(steps_[kPlain].size() < 2
                                 ? ""
                                 : std::ranges::max_element(sizes_->phases(), {}, peak)->where);
    executor_.allocate();
  }
  for (std::vector<Step>& steps : steps_)
    for (Step& step : steps)
      step.train = std::make_unique<TrainProgram>(executor_, step.program, *task_);
  evaluation_->begin(executor_);
  if (samples_) samples_->begin();
}

const Session::Step& Session::step_at(int64_t step) const {
  const int64_t histograms = train().histogram_interval_steps;
  int kind = kPlain;
  if (step % task_->learner().multi_optimizer().interval() == 0) kind |= kRenews;
  if (histograms > 0 && (step + 1) % histograms == 0) kind |= kHistograms;
  if (!has_kind(kind)) kind &= kHistograms;
  return steps_[static_cast<size_t>(kind)][sizes_->at(step).program];
}

CompiledStep Session::compiled(const StepSize& size, const Step& step) const {
  if (size.tokens == 0) fail("input '{}': its batches have no array 'ids'", input_->name());
  return {.stages = executor_.stage_plans(step.program),
          .mesh = mesh_,
          .tokens = size.tokens,
          .traced = &step.graph,
          .parameters = task_->model().parameters().elements(),
          .arena_bytes = executor_.arena_bytes(),
          .saved = executor_.saved_values(step.program),
          .pipeline = pipeline_};
}

Plan Session::plan(const std::optional<Hardware>& hardware) const {
  const int64_t steps = train().num_train_steps;
  const CompiledStep main = compiled_step();
  Plan plan = make_plan(main);
  if (hardware) plan.prediction = predict(main, *hardware);
  if (hardware && !sizes_->are_given()) plan.prediction->num_train_steps = steps;
  if (!steps_[kRenews].empty()) {
    const CompiledStep renewing = compiled(sizes_->main(), steps_[kRenews][sizes_->main().program]);
    plan.renewal = {.interval = task_->learner().multi_optimizer().interval(),
                    .peak = renewing.largest().use.peak};
    if (hardware) plan.renewal->step_seconds = predict(renewing, *hardware).step_seconds;
  }
  if (!sizes_->are_given()) return plan;
  plan.tokens_of_run = sizes_->tokens_before(steps);
  for (const StepSize& size : sizes_->phases()) {
    const CompiledStep step = compiled_step(size);
    plan.phases.push_back({size, size.steps_before(steps), step.largest().use.peak});
    if (hardware) plan.phases.back().step_seconds = predict(step, *hardware).step_seconds;
  }
  return plan;
}

void Session::check_vocabulary(const Graph& logits_graph) const {
  const GraphOutput* logits = logits_graph.find_output(names::kLogits);
  const Type& type = logits_graph.type(logits->value);
  if (!type.has(kVocabAxis)) return;  // Not a language model.
  const auto check = [&](const BaseInput& input, const std::string& where) {
    if (input.vocab_size() > type.axis(kVocabAxis).size)
      fail(
          "{}: its token ids reach {}, but the model's vocabulary has {}; set vocab_size to at "
          "least {}",
          where, input.vocab_size() - 1, type.axis(kVocabAxis).size, input.vocab_size());
  };
  check(*input_, "input");
  for (const EvalDataset& dataset : evaluation_->datasets())
    check(dataset.input(), "eval_inputs." + dataset.name());
}

void Session::write_plan(const std::filesystem::path& run_directory) {
  write_plan_files(run_directory, plan());
  const StepDigest program = step_digest(compiled_step().largest());
  write_file_atomically(run_directory / "program.json", program_json(program) + "\n");
  if (const std::string choices = device_.share_choices(""); !choices.empty())
    write_file_atomically(run_directory / kKernelChoicesFile, choices);
}

void require_metrics(const Session& session) {
  const TrainHParams& p = session.train();
  session.evaluation().require("task.train.early_stopping.metric", p.early_stopping.metric);
  session.evaluation().require("task.train.save_keep_best", p.save_keep_best);
  check_trackers(p);
}

void introduce_run(const std::string& title, const Session& session, const std::string& note,
                   const Device& device, Console& console) {
  console.info(title);
  const int64_t devices = session.mesh().num_devices();
  const std::string each =
      fmt::format("{}; {}, which mfu is measured against", device.description(), peak_text(device));
  console.info(devices == 1 ? each
                            : fmt::format("{} devices (mesh {}), each {}", devices,
                                          session.mesh().text(), each));
  if (!session.train().deterministic)
    console.info("task.train.deterministic=false: numbers may differ from run to run");
  if (!session.remark().empty()) console.info(session.remark());
  if (!note.empty()) console.info(note);
  for (const std::string& remark : session.input().remarks()) console.info("note: " + remark);
  console.info(weight_table(session.task().model().parameters()));
  console.info(plan_summary(session.plan()));
  warn_of_layouts(session, console);
}

void warn_of_layouts(const Session& session, Console& console) {
  const auto warn = [&](const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings) console.info("warning: " + warning);
  };
  warn(layout_lint(session.train_graph(), session.mesh()));
  warn(idle_mesh_axes(session.rules(), session.mesh(), session.train_graph()));
  warn(learning_warnings(session.task(), session.train_graph()));
  if (session.pipeline())
    warn(warnings_of_shared_weights(session.executor().persistent(), session.mesh()));
}

void take_weights(Session& session, const InitFrom& other, Console& console) {
  const std::filesystem::path run = path_or_url(other.directory, "task.train.init_from");
  const CheckpointStore store(run / "checkpoints");
  const std::optional<int64_t> step = other.step >= 0 ? other.step : store.newest();
  if (!step) fail("task.train.init_from: {} holds no checkpoint", store.directory().string());
  const LoadedWeights loaded = load_weights(session.executor(), session.task().model().parameters(),
                                            store.open(*step), other);
  check_taken_tokens(session, run, loaded);
  console.info(
      fmt::format("{} weights from step {} of {}:", loaded.taken.size(), *step, other.directory));
  for (const std::string& line : loaded.taken) console.info("  " + line);
  if (!loaded.left_out.empty())
    console.info(fmt::format("note: {} of its weights are left out: {}", loaded.left_out.size(),
                             few_names(loaded.left_out)));
  if (!loaded.initial.empty())
    console.info(fmt::format("note: {} weights of this run keep their initial values: {}",
                             loaded.initial.size(), few_names(loaded.initial)));
}

StepRunner::StepRunner(Session& session, const std::optional<ProfileWindow>& window,
                       std::filesystem::path trace_file, Console& console, NonfiniteSearch& search)
    : session_(session),
      window_(window),
      trace_file_(std::move(trace_file)),
      console_(console),
      search_(search) {}

void StepRunner::begin_step() {
  if (under_way() == 0) last_end_ = Clock::now();
}

void StepRunner::start(Batch batch, int64_t step, double input_wait) {
  if (window_ && taken_ >= window_->start && taken_ < window_->start + window_->steps) {
    traced_ = step;
    trace_.begin_step(step);
    session_.executor().observe(trace_.observer());
  }
  if (under_way() == 0) sent_before_ = session_.bytes_sent();
  session_.train_program(step).start(batch, step);
  started_.push_back({step, std::move(batch)});
  input_wait_ += input_wait;
  ++taken_;
}

FinishedStep StepRunner::finish() {
  FinishedStep finished{.result = session_.train_program(started_.front().step).finish(),
                        .input_wait = std::exchange(input_wait_, 0.0)};
  const Clock::time_point now = Clock::now();
  finished.seconds = std::chrono::duration<double>(now - std::exchange(last_end_, now)).count();
  const int64_t sent = session_.bytes_sent();
  sent_ += sent - std::exchange(sent_before_, sent);
  if (const std::optional<int64_t> traced = std::exchange(traced_, std::nullopt); traced) {
    session_.executor().observe({});
    write_trace(*window_, *traced);
  }
  Started started = std::move(started_.front());
  started_.pop_front();
  look_for_nonfinite(started, &finished);
  if (finished.result.applied)
    session_.input().recycle(std::move(started.batch));
  else
    finished.skipped_batch = std::move(started.batch);
  return finished;
}

// A skipped step has changed nothing but the counters of skipped steps.
void StepRunner::look_for_nonfinite(const Started& started, FinishedStep* finished) {
  StepResult& result = finished->result;
  const auto is_finite = [](const StepResult& of) {
    return std::isfinite(of.loss) && std::isfinite(of.grad_norm);
  };
  if (result.applied || is_finite(result) || std::exchange(has_searched_, true)) return;
  if (under_way() > 0) {  // It may have changed the weights.
    finished->nonfinite = fmt::format(
        "--mode=replay --step={} --find=nonfinite names the first launch of it that is not finite",
        started.step + 1);
    return;
  }
  const std::pair<std::string_view, int64_t> counters[] = {
      {names::kSkipped, result.skipped - 1}, {names::kSkippedInARow, result.skipped_in_a_row - 1}};
  for (const auto& [name, count] : counters) {
    const auto before = static_cast<float>(count);
    session_.executor().write_state(fmt::format("learner/{}", name),
                                    std::as_bytes(std::span(&before, 1)));
  }
  TrainProgram& program = session_.train_program(started.step);
  const std::string found =
      search_.find(session_.executor(), session_.mesh(), program.program(), session_.processes(),
                   [&] { result = program.run(started.batch, started.step); });
  finished->nonfinite =
      found.empty()
          ? fmt::format(
                "step {} was not finite, and is finite when it is repeated, which counts; "
                "--mode=selfcheck checks this machine",
                started.step + 1)
          : found;
}

// After the last step of the window or of the run.
void StepRunner::write_trace(const ProfileWindow& window, int64_t step) {
  const bool is_last =
      taken_ == window.start + window.steps || step + 1 == session_.train().num_train_steps;
  if (!is_last || !session_.processes().is_first()) return;
  trace_.write(trace_file_);
  console_.info(fmt::format("{} holds the times of {} steps; it opens in ui.perfetto.dev",
                            trace_file_.filename().string(), taken_ - window.start));
}

// None if the last step or the next is traced.
size_t StepRunner::most_under_way() const {
  const bool is_traced =
      window_ && taken_ >= window_->start && taken_ <= window_->start + window_->steps;
  return is_traced ? 0 : session_.executor().most_under_way() - 1;
}

std::map<std::string, double> StepRunner::traffic(int64_t devices_here) const {
  if (session_.mesh().num_devices() == 1 || taken_ == 0) return {};
  return {{"sent_bytes_per_step",
           static_cast<double>(sent_) / static_cast<double>(taken_ * devices_here)}};
}

}  // namespace tessera
