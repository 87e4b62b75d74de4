// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/learning_warnings.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
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

std::vector<std::string> schedule_warnings(const BaseOptimizer& optimizer, int64_t steps) {
  const int64_t warmup = optimizer.warmup_steps(), end = optimizer.decay_end();
  if (steps <= kSmokeSteps) return {};
  std::vector<std::string> warnings;
  const auto last = [&] { return optimizer.learning_rate(steps - 1, steps); };
  if (warmup >= steps)
    warnings.push_back(fmt::format(
        "the warm-up of the learning rate takes {} steps, but the run has {}: it ends at a "
        "learning rate of {:.3g}; set a shorter warm-up, or more steps",
        warmup, steps, last()));
  if (end >= 0 && end < steps)
    warnings.push_back(fmt::format(
        "the decay of the learning rate ends at step {} (decay_end), but the run has {}: the steps "
        "after it have a learning rate of {:.3g}; set decay_end to -1, the end of the run, or "
        "num_train_steps to {}",
        end, steps, last(), end));
  return warnings;
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
  const int64_t steps = task.train().num_train_steps;
  for (const auto& [rule, optimizer, input] : task.learner().optimizers())
    for (const std::string& warning : schedule_warnings(*optimizer, steps))
      warnings.push_back(rule.empty() ? warning
                                      : fmt::format("optimizer rule '{}': {}", rule, warning));
  return warnings;
}

std::string change_note(const std::string& change, int64_t step, const std::string& hparams_before,
                        const BaseTask& task) {
  if (change.empty()) return "";
  return fmt::format("note: step {} was saved with a different configuration: {}{}", step, change,
                     learning_rate_change(step, hparams_before, task));
}

}  // namespace tessera
