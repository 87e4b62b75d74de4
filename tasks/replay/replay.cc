// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/replay.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/compile/computation.h"
#include "core/graph/text.h"
#include "core/ops/norm.h"
#include "core/ops/repeat.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/replay/replay_report.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/observe/launch_list.h"
#include "tasks/run/observe/nonfinite_search.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/mesh_config.h"

namespace tessera {
namespace {

using Side = OtherSideChoice::Kind;

// The devices of a run, each with its observation.
class ObservedDevices {
 public:
  ObservedDevices(const std::vector<Device*>& devices,
                  const std::function<bool(const OpDef&)>& runs) {
    for (Device* device : devices) {
      LaunchObservation& observation = observations_.emplace_back(std::ssize(owned_));
      owned_.push_back(make_inspected_device(*device, observation.inspector(), runs));
      in_order_.push_back(owned_.back().get());
    }
  }

  const std::vector<Device*>& in_order() const { return in_order_; }
  std::deque<LaunchObservation>& observations() { return observations_; }

 private:
  std::deque<LaunchObservation> observations_;  // The devices refer to them.
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> in_order_;
};

// Evaluation would only need its data and memory.
ExperimentConfig without_evaluation(ExperimentConfig config) {
  config.eval_inputs.clear();
  config.eval = {};
  return config;
}

// Two sides must order their launches alike. A pipeline always overlaps; in other steps whether
// collectives overlap depends on the kind of device, and changes no result.
std::optional<Communication> common_communication(const ExperimentConfig& config, int64_t devices) {
  if (planned_mesh(config.mesh, devices).stages() > 1) return std::nullopt;
  return Communication::kInline;
}

// Meshes are compared by values, so ops may not be fused to launches that depend on the mesh. With
// or without fusion a step has the same bits.
std::function<bool(const OpDef&)> replayed_kernels(Numerics numerics,
                                                   std::function<bool(const OpDef&)> other_has) {
  if (numerics != Numerics::kMeshInvariant) return other_has;
  return [other_has](const OpDef& op) {
    const std::array<const OpDef*, 4> fused = {&kFusedOp, &kFusedUpdatesOp, &kFusedProductOp,
                                               &kFusedNormOp};
    return std::ranges::find(fused, &op) == fused.end() && (!other_has || other_has(op));
  };
}

void require_one_process(const ProcessGroup& processes, int64_t devices) {
  if (processes.size() > 1)
    fail(
        "--mode=replay runs in one process, got {}; start it without a launcher and with "
        "--devices={}, which computes the same",
        processes.size(), processes.size() * devices);
}

void require_run(const std::filesystem::path& directory) {
  if (!std::filesystem::exists(directory / "hparams.toml"))
    fail(
        "--mode=replay: {} holds no run (it has no hparams.toml); give --config=RUN or "
        "--job_log_dir=RUN{}",
        directory.string(), did_you_mean_run(directory));
}

// The step of the checkpoint to begin from: the chosen one, or the nearest before `step`. Nullopt:
// the initial weights.
std::optional<int64_t> step_to_begin_from(const CheckpointStore& store, int64_t step,
                                          const CheckpointChoice& choice) {
  std::optional<int64_t> nearest;
  if (choice.kind == CheckpointChoice::Kind::kStep) {
    if (choice.step >= step)
      fail("--checkpoint={}: step {} begins from a checkpoint of step {} or before", choice.step,
           step, step - 1);
    const std::vector<int64_t> steps = store.steps();
    if (choice.step == 0 && std::ranges::find(steps, 0) == steps.end()) return std::nullopt;
    return choice.step;  // open() fails if it does not exist.
  }
  for (const int64_t saved : store.steps())
    if (saved < step) nearest = saved;
  return nearest;
}

class Replay final : public BaseRun {
 public:
  Replay(const RunContext& context, const ReplaySetting& setting)
      : options_(context.setting),
        setting_(setting),
        device_text_(context.devices.at(0)->description()),
        device_kind_(context.devices.at(0)->kind()),
        directory_(options_.job_log_dir),
        store_(directory_ / "checkpoints"),
        console_(console_of(options_, context.processes)),
        processes_(context.processes),
        numerics_(context.config.task.instantiate()->train().numerics),
        devices_(context.devices, replayed_kernels(numerics_, setting.other_has_kernel)),
        search_(context.devices) {
    require_one_process(processes_, options_.devices);
    require_run(directory_);
    if (p().against.kind == Side::kRecording)
      other_ = std::make_unique<OtherSide>(RecordingReader::open(p().against.value));
    session_ = std::make_unique<Session>(
        without_evaluation(context.config),
        SessionOptions{.run_directory = directory_,
                       .input_directory = directory_,
                       .devices = options_.devices,
                       .keeps_tokenizer = false,
                       .communication = common_communication(context.config, options_.devices)},
        p().finds_nonfinite ? search_.in_order() : devices_.in_order(), processes_);
    begin();
  }

  int run() override {
    console_.info(heading());
    train_to_step();
    if (p().finds_nonfinite) return find_nonfinite();
    const StepResult result = observed_step();
    const StepNumbers here{result.loss, result.grad_norm};
    if (writer_) {
      if (is_mesh_invariant()) writer_->add_sums(sums_.by_name());
      writer_->finish(here.loss, here.grad_norm);
    }
    return report(here);
  }

 private:
  const ReplayOptions& p() const { return setting_.replay; }
  bool is_mesh_invariant() const { return numerics_ == Numerics::kMeshInvariant; }
  bool compares_meshes() const {
    return other_ && is_mesh_invariant() && other_->header().mesh != session_->mesh().text();
  }

  void begin() {
    const int64_t last = session_->train().num_train_steps;
    if (p().step > last)
      fail("--step={}: the run has {} steps (task.train.num_train_steps)", p().step, last);
    recorded_ = recorded_numbers();
    if (p().against.kind == Side::kNone && p().record.empty() && !p().finds_nonfinite && !recorded_)
      fail(
          "--mode=replay has nothing to compare: {} has no line of step {}; give --against, "
          "--record or --find",
          (directory_ / "metrics.jsonl").string(), p().step);
    make_lists();
    restore();
    if (!setting_.other_command.empty())
      other_ = start_other_side(setting_.other_command, setting_.other_environment);
    const RecordingHeader own = header();
    if (other_) require_comparable(own);
    if (!p().record.empty()) writer_ = std::make_unique<RecordingWriter>(p().record, own);
  }

  TrainProgram& replayed() const { return session_->train_program(p().step - 1); }

  void make_lists() {
    for (const StagePlan& stage : session_->executor().stage_plans(replayed().program()))
      lists_.emplace_back(stage.stage, *stage.plan);
  }
  const LaunchList& list_of(int64_t device) const {
    const int64_t stage = session_->mesh().stage_of(device);
    return std::ranges::find(lists_, stage, [](const auto& each) { return each.first; })->second;
  }

  RecordingHeader header() const {
    RecordingHeader header{.step = p().step,
                           .experiment = options_.experiment,
                           .build = setting_.build,
                           .device = device_text_,
                           .mesh = session_->mesh().text(),
                           .graph = graph_hash(session_->train_graph(p().step - 1)),
                           .numerics = std::string(enum_name(numerics_)),
                           .trained_from = started_from_,
                           .values = p().values};
    for (const auto& [stage, list] : lists_) header.programs.push_back(list.identity());
    return header;
  }

  void require_comparable(const RecordingHeader& own) const {
    const RecordingHeader& theirs = other_->header();
    if (compares_meshes() && (p().tolerance > 0 || p().inputs == LaunchInputs::kOther))
      fail(
          "{} is on mesh {}, which is compared by sums of hashes, without --tolerance or --isolate",
          other_->where(), theirs.mesh);
    if (const std::string problem = program_difference(own, theirs); !problem.empty())
      fail("{} cannot be compared: {}{}", other_->where(), problem,
           own.graph == theirs.graph
               ? fmt::format("; the traced steps are equal: devices of another kind run another "
                             "program unless it is recorded with --kernels_of={}",
                             device_kind_)
               : "");
    if (p().tolerance > 0 && theirs.values == RecordedValues::kNone)
      fail(
          "{} holds hashes only, which --tolerance cannot compare; record it with "
          "--record_values=outputs",
          other_->where());
    if (p().inputs == LaunchInputs::kOther && theirs.values != RecordedValues::kAll)
      fail(
          "{} does not hold what launches read, which --isolate needs; record it with "
          "--record_values=all",
          other_->where());
  }

  void restore() {
    const auto from = step_to_begin_from(store_, p().step, p().checkpoint);
    if (!from) {
      if (!session_->train().init_from.directory.empty())
        fail(
            "{} has no checkpoint before step {}, and the run began with weights of another one "
            "(task.train.init_from)",
            store_.directory().string(), p().step);
      initialise_state(session_->executor(), session_->task().model().parameters(),
                       static_cast<uint64_t>(session_->train().seed), options_.threads);
      return;
    }
    const Checkpoint checkpoint = open_checkpoint(*from);
    started_from_ = *from;
    has_checkpoint_ = true;
    const LoopState state = loop_state_of(checkpoint.info());
    if (state.input.position > 0 || !state.input.cursors.empty())
      session_->input().restore(state.input);
    note_changes(checkpoint.info(), state);
  }

  // Restores it, too.
  Checkpoint open_checkpoint(int64_t step) {
    try {
      Checkpoint checkpoint = store_.open(step);
      restore_state(session_->executor(), session_->task().model().parameters(), checkpoint);
      return checkpoint;
    } catch (const DamagedCheckpoint& damage) {
      std::vector<std::string> earlier = {"0, the initial weights"};
      for (const int64_t other : store_.steps())
        if (other < step) earlier.push_back(fmt::format("{}", other));
      fail("{}; to replay from an earlier step give --checkpoint={}", damage.what(),
           earlier.back());
    }
  }

  void note_changes(const CheckpointInfo& info, const LoopState& state) {
    const std::string mesh = session_->mesh().text();
    if (!state.mesh.empty() && state.mesh != mesh && !is_mesh_invariant())
      notes_.push_back(
          fmt::format("note: step {} was saved on mesh {}; on {} sums may be rounded "
                      "differently",
                      info.step, state.mesh, mesh));
    if (Computation(session_->train_graph()).difference(state.computation))
      notes_.push_back(
          fmt::format("note: the step is not the one that the run computed at step "
                      "{}: another build or configuration",
                      info.step));
  }

  std::optional<StepNumbers> recorded_numbers() const {
    const auto value = [&](std::string_view key) -> std::optional<double> {
      const auto values = values_in_log(directory_ / "metrics.jsonl", key);
      const auto found = values.find(p().step);
      return found == values.end() ? std::nullopt : std::optional(found->second);
    };
    const auto loss = value("loss"), grad_norm = value("grad_norm");
    if (!loss || !grad_norm) return std::nullopt;
    return StepNumbers{*loss, *grad_norm};
  }

  std::string heading() const {
    const int64_t trained = p().step - 1 - started_from_;
    std::string text = fmt::format(
        "step {} of {}, from {}{}", p().step, directory_.string(),
        has_checkpoint_ ? fmt::format("the checkpoint of step {}", started_from_)
                        : std::string("the initial weights"),
        trained == 0 ? ""
                     : fmt::format(" after training {} step{}", trained, trained == 1 ? "" : "s"));
    text += "\nhere:  " + device_text_;
    if (compares_meshes()) text += ", mesh " + session_->mesh().text();
    if (other_) text += "\nthere: " + there();
    for (const std::string& note : notes_) text += "\n" + note;
    return text;
  }

  std::string there() const {
    const RecordingHeader& theirs = other_->header();
    if (compares_meshes()) return fmt::format("{}, mesh {}", theirs.device, theirs.mesh);
    return theirs.build == setting_.build
               ? theirs.device
               : fmt::format("{}; build {}, here {}", theirs.device, theirs.build, setting_.build);
  }

  Batch next_batch(int64_t step) {
    std::optional<Batch> batch = session_->input().get_next();
    if (!batch) fail("the training input ended before step {}", step + 1);
    return std::move(*batch);
  }

  // The steps between the checkpoint and the replayed one.
  void train_to_step() {
    constexpr std::chrono::seconds kInterval(10);  // Interval of progress lines.
    auto last = std::chrono::steady_clock::now();
    for (int64_t step = started_from_; step + 1 < p().step; ++step) {
      session_->train_program(step).run(next_batch(step), step);
      if (std::chrono::steady_clock::now() < last + kInterval) continue;
      last = std::chrono::steady_clock::now();
      console_.info(fmt::format("trained step {}", step + 1));
    }
  }

  StepResult observed_step() {
    int64_t device = 0;
    for (LaunchObservation& observation : devices_.observations())
      observation.begin(list_of(device++), {.writer = writer_.get(),
                                            .values = p().values,
                                            .other = compares_meshes() ? nullptr : other_.get(),
                                            .comparison = &comparison_,
                                            .sums = is_mesh_invariant() ? &sums_ : nullptr,
                                            .tolerance = p().tolerance,
                                            .inputs = p().inputs});
    // Launches of observed runs are inspected.
    session_->executor().observe([](const Graph&, const Node&, const LaunchTimes&) {});
    StepResult result = replayed().run(next_batch(p().step - 1), p().step - 1);
    session_->executor().observe({});
    return result;
  }

  int find_nonfinite() {
    StepResult result;
    const std::string found =
        search_.find(session_->executor(), session_->mesh(), replayed().program(), processes_,
                     [&] { result = replayed().run(next_batch(p().step - 1), p().step - 1); });
    console_.info(found.empty() ? fmt::format("all {} launches wrote finite values\n", launches())
                                : found + "\n");
    console_.info(numbers_text({result.loss, result.grad_norm}, std::nullopt, recorded_));
    return found.empty() ? 0 : 1;
  }

  int report(const StepNumbers& here) {
    bool is_equal = true;
    std::optional<StepNumbers> there;
    if (other_) {
      const RecordingEnd end = other_->end();
      there = StepNumbers{end.loss, end.grad_norm};
      is_equal = compares_meshes() ? print_mesh_comparison(end) && same_numbers(here, *there, 0)
                                   : print_comparison();
    }
    console_.info(numbers_text(here, there, recorded_));
    // With the inputs of the other side the numbers are not those of a step.
    if (recorded_ && p().inputs == LaunchInputs::kOwn) {
      const bool is_reproduced = same_numbers(here, *recorded_, p().tolerance);
      console_.info(is_reproduced ? "the recorded step is reproduced here"
                                  : "the recorded step is NOT reproduced here");
      // A recording is there to be compared elsewhere.
      if (other_ || p().record.empty()) is_equal = is_equal && is_reproduced;
      if (there && same_numbers(*there, *recorded_, p().tolerance) != is_reproduced)
        console_.info(is_reproduced ? "it is not there" : "it is there");
    }
    if (!p().record.empty())
      console_.info(fmt::format("{} holds {} launches", p().record.string(), launches()));
    return is_equal ? 0 : 1;
  }

  int64_t launches() const {
    int64_t count = 0;
    for (int64_t device = 0; device < options_.devices; ++device)
      count += std::ssize(list_of(device).launches());
    return count;
  }

  // The numbers of launches order those of all devices, unless the stages of a pipeline have
  // different programs. Without that, devices are in the order in which they happened to be.
  std::vector<LaunchDifference> ordered_differences() const {
    std::vector<LaunchDifference> differences = comparison_.differences();
    if (lists_.size() > 1) return differences;
    std::ranges::sort(differences, {}, [](const LaunchDifference& difference) {
      return std::pair(difference.launch, difference.device);
    });
    return differences;
  }

  // Whether no value differs.
  bool print_mesh_comparison(const RecordingEnd& end) {
    std::vector<const LaunchList*> lists;
    for (const auto& [stage, list] : lists_) lists.push_back(&list);
    const MeshComparison compared = compared_meshes(lists, sums_.by_name(), end.sums);
    console_.info(compared.text());
    return compared.is_equal();
  }

  // Whether no launch differs.
  bool print_comparison() {
    ComparedLaunches compared{.compared = comparison_.compared(),
                              .differences = ordered_differences(),
                              .tolerance = p().tolerance,
                              .inputs = p().inputs,
                              .trained_steps = p().step - 1 - started_from_};
    int64_t left_out = 0;
    for (int64_t device = 0; device < options_.devices; ++device) {
      compared.lists.push_back(&list_of(device));
      left_out += list_of(device).left_out();
    }
    console_.info(comparison_text(compared));
    if (left_out > 0)
      console_.info(fmt::format(
          "not compared: {} copies of memory planning, which each side has its own of\n",
          left_out));
    return compared.differences.empty();
  }

  RunSetting options_;
  ReplaySetting setting_;
  std::string device_text_, device_kind_;
  std::filesystem::path directory_;
  CheckpointStore store_;
  Console console_;
  ProcessGroup& processes_;
  Numerics numerics_;
  ObservedDevices devices_;  // Before the session, which uses these
  NonfiniteSearch search_;   // or those of the search to its end.
  std::unique_ptr<Session> session_;
  std::vector<std::pair<int64_t, LaunchList>> lists_;  // By stage.
  int64_t started_from_ = 0;                           // Steps of the checkpoint.
  bool has_checkpoint_ = false;
  std::vector<std::string> notes_;
  std::optional<StepNumbers> recorded_;  // In metrics.jsonl.
  std::unique_ptr<OtherSide> other_;
  std::unique_ptr<RecordingWriter> writer_;
  Comparison comparison_;
  ValueSums sums_;
};

}  // namespace

std::unique_ptr<BaseRun> replay_run(const RunContext& context, const ReplaySetting& setting) {
  return std::make_unique<Replay>(context, setting);
}

}  // namespace tessera
