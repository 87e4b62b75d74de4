// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/loop_state.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/compile/computation.h"
#include "core/hparams/convert.h"
#include "inputs/checked_input.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/model_pipeline.h"
#include "tasks/task/step_sizes.h"

namespace tessera {
namespace {

// Keys beside those of the input.
constexpr const char* kStopReason = "trainer/stop_reason";
constexpr const char* kBestMetric = "trainer/best_metric";
constexpr const char* kEvalsSinceBest = "trainer/evals_since_best";
constexpr const char* kMesh = "trainer/mesh";
constexpr const char* kBuild = "trainer/build";
constexpr const char* kPlugins = "trainer/plugins";
constexpr const char* kRevision = "trainer/revision";
constexpr const char* kComputation = "trainer/computation";
constexpr const char* kInterrupted = "trainer/interrupted";
// "eval/<dataset>/position", "eval/<dataset>/extra/<key>"; dataset names contain no slash.
constexpr std::string_view kEvalStatePrefix = "eval/";
constexpr std::string_view kPosition = "position";
constexpr std::string_view kExtra = "extra/";

int64_t position_of(const std::string& key, const std::string& text) {
  const std::optional<int64_t> position = parse_integer(text);
  if (!position) fail("the checkpoint's '{}' is '{}'; expected a number", key, text);
  return *position;
}

std::map<std::string, InputState> take_evals(std::map<std::string, std::string>* extra) {
  std::map<std::string, InputState> evals;
  for (auto at = extra->lower_bound(std::string(kEvalStatePrefix));
       at != extra->end() && at->first.starts_with(kEvalStatePrefix); at = extra->erase(at)) {
    const std::string key = at->first.substr(kEvalStatePrefix.size());
    const size_t slash = std::min(key.find('/'), key.size());
    InputState& state = evals[key.substr(0, slash)];
    const std::string what = key.substr(std::min(slash + 1, key.size()));
    if (what == kPosition) state.position = position_of(at->first, at->second);
    if (what.starts_with(kExtra)) state.cursors[what.substr(kExtra.size())] = at->second;
  }
  return evals;
}

// What changed since the checkpoint that a run resumes from: mesh, configuration and code. Code is
// compared by what a training step of the saved configuration on the saved mesh computes, so that a
// change of either is not taken for one of the code.

// The mesh that Mesh::text() describes.
Mesh mesh_of_text(const std::string& text) {
  MeshConfig config;
  config.axis_names.clear();
  std::istringstream axes(text);
  int64_t devices = 1;
  for (std::string axis; axes >> axis;) {
    const size_t equals = axis.find('=');
    if (equals == std::string::npos) fail("'{}' is not a mesh, expected name=size", text);
    config.axis_names.push_back(axis.substr(0, equals));
    config.ici_mesh_shape.push_back(std::stoll(axis.substr(equals + 1)));
    devices *= config.ici_mesh_shape.back();
  }
  return planned_mesh(config, devices);
}

Graph traced_step(const ExperimentConfig& config, const std::string& mesh_text) {
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const AxisRules rules = make_rules(config.rules);
  Mesh mesh = mesh_of_text(mesh_text);
  if (const auto pipeline = model_pipeline(task->train(), task->model().parameters(), rules, mesh))
    mesh = with_pieces(std::move(mesh), *pipeline);
  const std::unique_ptr<BaseInput> input = make_input(config.input);
  const StepSizes sizes(task->train().phases, *input);
  return task->train_graph({mesh, rules, global_specification(*input, sizes.main())});
}

// The first difference in what this code computes; nullopt: none.
std::optional<std::string> difference(const CheckpointInfo& info, const LoopState& state) {
  try {
    const ExperimentConfig config = parse_config(info.hparams, "the checkpoint's hparams");
    const auto found = Computation(traced_step(config, state.mesh)).difference(state.computation);
    return found ? std::optional("the first difference is " + *found) : std::nullopt;
  } catch (const Error& error) {
    return fmt::format("it cannot build the saved configuration: {}", error.what());
  }
}

// "" if the rate is the same, or if another version wrote the text.
std::string learning_rate_change(int64_t step, const std::string& hparams_before,
                                 const BaseTask& task) {
  std::unique_ptr<BaseTask> old_task;
  try {
    old_task = parse_config(hparams_before, "the checkpoint's hparams").task.instantiate();
  } catch (const Error&) {
    return "";
  }
  // Compares optimizers that both tasks have.
  const auto& old_ones = old_task->learner().optimizers();
  const auto& new_ones = task.learner().optimizers();
  double was = 0.0, is = 0.0;
  for (size_t i = 0; i < std::min(old_ones.size(), new_ones.size()) && was == is; ++i) {
    was = old_ones[i].optimizer->learning_rate(step, old_task->train().num_train_steps);
    is = new_ones[i].optimizer->learning_rate(step, task.train().num_train_steps);
  }
  if (std::abs(was - is) <= 1e-6 * std::max(was, is)) return "";
  const bool is_extended = old_task->train().num_train_steps != task.train().num_train_steps;
  return fmt::format(
      "; the learning rate of step {} is now {:.3g}, it was {:.3g}{}", step, is, was,
      is_extended ? " (a schedule without an end of its own ends at num_train_steps)" : "");
}

std::string text_of(const CodeStamp& code) {
  std::string text = "build " + (code.build.empty() ? "unknown" : code.build);
  if (!code.plugins.empty()) text += "; plugins " + code.plugins;
  if (!code.revision.empty()) text += "; revision " + code.revision;
  return text;
}

// A line for the user, or "".
std::string check_code(const CheckpointInfo& info, const LoopState& state,
                       const RunSetting& setting) {
  if (const auto found = difference(info, state)) {
    const std::string what = fmt::format(
        "this code computes a training step differently from the code that saved step {}: {}. It "
        "was saved by {}; this is {}",
        info.step, *found, text_of(state.code), text_of(setting.code));
    if (setting.allow_code_change) return "note: " + what;
    fail(
        "{}. Restore the old code, use a new --job_log_dir, or continue with the new code by "
        "--allow_code_change",
        what);
  }
  if (state.code.build == setting.code.build) return "";
  return fmt::format("note: step {} was saved by {}; this is {}; losses may differ by rounding",
                     info.step, text_of(state.code), text_of(setting.code));
}

}  // namespace

void put_loop_state(const LoopState& state, CheckpointInfo* info) {
  info->input_position = state.input.position;
  info->input_extra = state.input.cursors;
  for (const auto& [dataset, input] : state.evals) {
    info->input_extra[fmt::format("{}{}/{}", kEvalStatePrefix, dataset, kPosition)] =
        std::to_string(input.position);
    for (const auto& [key, value] : input.cursors)
      info->input_extra[fmt::format("{}{}/{}{}", kEvalStatePrefix, dataset, kExtra, key)] = value;
  }
  if (!state.stop_reason.empty()) info->input_extra[kStopReason] = state.stop_reason;
  info->input_extra[kBestMetric] = fmt::format("{}", state.early_stopper.best);
  info->input_extra[kEvalsSinceBest] = fmt::format("{}", state.early_stopper.evals_since_best);
  info->input_extra[kMesh] = state.mesh;
  info->input_extra[kBuild] = state.code.build;
  info->input_extra[kPlugins] = state.code.plugins;
  info->input_extra[kRevision] = state.code.revision;
  info->input_extra[kComputation] = state.computation;
  if (!state.interrupted.empty()) info->input_extra[kInterrupted] = state.interrupted;
}

LoopState loop_state_of(const CheckpointInfo& info) {
  LoopState state;
  state.input = {info.input_position, info.input_extra};
  state.evals = take_evals(&state.input.cursors);
  const auto take = [&](const char* name) {
    const auto node = state.input.cursors.extract(name);
    return node ? node.mapped() : std::string();
  };
  state.stop_reason = take(kStopReason);
  const std::string best = take(kBestMetric), since = take(kEvalsSinceBest);
  if (!best.empty()) state.early_stopper = {std::stod(best), std::stoll(since)};
  state.mesh = take(kMesh);
  state.code = {take(kBuild), take(kPlugins), take(kRevision)};
  state.computation = take(kComputation);
  state.interrupted = take(kInterrupted);
  return state;
}

InputState merged_input_states(const InputState& mine, ProcessGroup& processes) {
  if (processes.size() == 1) return mine;
  InputState all;  // Equal in every process, and so are errors.
  const std::vector<std::string> states =
      processes.all_gather(pack(mine.position, mine.cursors), "the inputs' positions");
  for (size_t rank = 0; rank < states.size(); ++rank) {
    InputState state;
    unpack(states[rank], state.position, state.cursors);
    all.position = std::max(all.position, state.position);
    for (const auto& [key, value] : state.cursors) {
      const auto [entry, added] = all.cursors.emplace(key, value);
      if (!added && entry->second != value)
        fail("the input's '{}' is '{}' in {}, but '{}' in a process before it", key, value,
             processes.name(static_cast<int>(rank)), entry->second);
    }
  }
  return all;
}

std::string EarlyStopper::observe(const std::map<std::string, double>& metrics) {
  if (p_.metric.empty()) return "";
  const auto found = metrics.find(p_.metric);
  CHECK(found != metrics.end(), "no metric {}", p_.metric);
  const double value = found->second;
  if (value < state_.best - p_.min_improvement) {
    state_ = {value, 0};
  } else {
    ++state_.evals_since_best;
  }
  if (p_.stop_at_target && value <= p_.target)
    return fmt::format("{} = {:.4f} has reached the target {}", p_.metric, value, p_.target);
  if (p_.patience_evals > 0 && state_.evals_since_best >= p_.patience_evals)
    return fmt::format("{} has not improved on {:.4f} for {} evaluations", p_.metric, state_.best,
                       state_.evals_since_best);
  return "";
}

std::vector<std::string> check_resume(const CheckpointInfo& info, const LoopState& state,
                                      const std::string& mesh, const std::string& change,
                                      const BaseTask& task, const RunSetting& setting) {
  std::vector<std::string> notes;
  if (state.mesh != mesh)
    notes.push_back(
        fmt::format("note: step {} was saved on mesh {}; on {} losses may differ by rounding",
                    info.step, state.mesh, mesh));
  if (!change.empty())
    notes.push_back(fmt::format("note: step {} was saved with a different configuration: {}{}",
                                info.step, change,
                                learning_rate_change(info.step, info.hparams, task)));
  if (const std::string note = check_code(info, state, setting); !note.empty())
    notes.push_back(note);
  return notes;
}

}  // namespace tessera
