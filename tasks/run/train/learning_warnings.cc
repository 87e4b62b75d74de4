// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/learning_warnings.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/autodiff/gradient_reach.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/task/config/experiment.h"

namespace tessera {
namespace {

// Most of them are of one kind of layer.
constexpr size_t kMostNamed = 4;

std::vector<std::string> weights_without_gradient(const BaseTask& task, const Graph& graph) {
  const ValueFlags reached = reached_by_gradient(graph, graph.find_output(names::kLoss)->value);
  std::vector<std::string> paths;
  for (const Parameter& parameter : task.model().parameters().parameters()) {
    const GraphInput* input = graph.find_input(parameter.path);
    if (task.learner().trains(parameter) && input != nullptr && !reached[input->value])
      paths.push_back(parameter.path);
  }
  return paths;
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
  const auto rate = [step](const BaseTask& of) {
    return of.learner().optimizer().learning_rate(step, of.train().num_train_steps);
  };
  const double was = rate(*old_task), is = rate(task);
  if (std::abs(was - is) <= 1e-6 * std::max(was, is)) return "";
  const bool is_extended = old_task->train().num_train_steps != task.train().num_train_steps;
  return fmt::format(
      "; the learning rate of step {} is now {:.3g}, it was {:.3g}{}", step, is, was,
      is_extended ? " (a schedule without an end of its own ends at num_train_steps)" : "");
}

}  // namespace

std::vector<std::string> learning_warnings(const BaseTask& task, const Graph& train_graph) {
  std::vector<std::string> warnings;
  std::vector<std::string> paths = weights_without_gradient(task, train_graph);
  if (const size_t count = paths.size(); count > 0) {
    const std::string_view it = count == 1 ? "it" : "them";
    paths.resize(std::min(count, kMostNamed));
    warnings.push_back(fmt::format(
        "no gradient reaches {}{}, since the loss does not depend on {}; use {} in fprop, or list "
        "{} in task.learner.bprop_variable_exclusion",
        fmt::join(paths, ", "),
        count > kMostNamed ? fmt::format(" and {} more weights", count - kMostNamed) : "", it, it,
        it));
  }
  const int64_t warmup = task.learner().optimizer().warmup_steps();
  const int64_t steps = task.train().num_train_steps;
  if (warmup >= steps && steps > kSmokeSteps)
    warnings.push_back(fmt::format(
        "the warm-up of the learning rate takes {} steps, but the run has {}: it ends at a "
        "learning rate of {:.3g}; set a shorter warm-up, or more steps",
        warmup, steps, task.learner().optimizer().learning_rate(steps - 1, steps)));
  return warnings;
}

std::string change_note(const std::string& change, int64_t step, const std::string& hparams_before,
                        const BaseTask& task) {
  if (change.empty()) return "";
  return fmt::format("note: step {} was saved with a different configuration: {}{}", step, change,
                     learning_rate_change(step, hparams_before, task));
}

}  // namespace tessera
