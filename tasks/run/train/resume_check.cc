// SPDX-License-Identifier: Apache-2.0
// What changed since the checkpoint that a run resumes from: mesh, configuration and code. Code is
// compared by what a training step of the saved configuration on the saved mesh computes, so that a
// change of either is not taken for one of the code.
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/computation.h"
#include "inputs/checked_input.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/task/base_task.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/model_pipeline.h"
#include "tasks/task/step_sizes.h"

namespace tessera {
namespace {

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

std::vector<std::string> check_resume(const CheckpointInfo& info, const LoopState& state,
                                      const std::string& mesh, const std::string& change_note,
                                      const RunSetting& setting) {
  std::vector<std::string> notes;
  if (state.mesh != mesh)
    notes.push_back(
        fmt::format("note: step {} was saved on mesh {}; on {} losses may differ by rounding",
                    info.step, state.mesh, mesh));
  if (!change_note.empty()) notes.push_back(change_note);
  if (const std::string note = check_code(info, state, setting); !note.empty())
    notes.push_back(note);
  return notes;
}

}  // namespace tessera
