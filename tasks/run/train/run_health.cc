// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/run_health.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/autodiff/gradient_reach.h"
#include "core/io/hdf5.h"
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

void RunHealth::check(const StepResult& result, int64_t step, const std::string& nonfinite,
                      RunLog& log, Console& console) {
  skipped_ = result.skipped;
  if (!result.applied) {
    log.event("skip", step);
    console.info(fmt::format("step {} skipped: loss {:.6g}, gradient norm {:.6g}", step,
                             result.loss, result.grad_norm));
  }
  const auto above = [&](std::string_view metric) {
    const auto found = result.metrics.find(std::string(metric));
    return found == result.metrics.end() ? 0.0 : found->second;
  };
  const double loss = above(names::kLossDeviations), norm = above(names::kGradNormDeviations);
  if (result.applied && spike_deviations_ > 0.0 && std::max(loss, norm) > spike_deviations_) {
    const std::string text = fmt::format(
        "loss {:.6g} and gradient norm {:.6g} are {:.1f} and {:.1f} standard deviations above the "
        "mean of the steps before",
        result.loss, result.grad_norm, loss, norm);
    log.event("spike", step, text);
    console.info(fmt::format("warning: step {} is a spike: {}", step, text));
  }
  if (!nonfinite.empty()) {
    log.event("nonfinite", step, nonfinite);
    console.info(nonfinite);
  }
  if (!result.applied) {
    if (max_in_a_row_ > 0 && result.skipped_in_a_row >= max_in_a_row_)
      fail(
          "{} steps in a row were skipped, the last with loss {} and gradient norm {}; lower the "
          "learning rate, or check the batches (max_skipped_in_a_row)",
          result.skipped_in_a_row, result.loss, result.grad_norm);
    check_end(num_steps_);  // Known as soon as that many are skipped.
  } else if (!std::isfinite(result.loss)) {
    fail(
        "the loss is {} at step {}, and skip_nonfinite_steps is off; lower the learning rate, or "
        "resume from an earlier checkpoint (--mode=replay --step={} --find=nonfinite names the "
        "first launch that is not finite)",
        result.loss, step, step);
  }
}

void RunHealth::check_end(int64_t steps) const {
  if (skipped_ <= steps / 2) return;
  fail(
      "the run has failed: {} of its {} steps were skipped, more than half, because their loss "
      "or gradient was not finite or too large; lower the learning rate, or check the batches",
      skipped_, steps);
}

std::string keep_batch(const Batch& batch, int64_t step, int process,
                       const std::filesystem::path& directory) try {
  std::filesystem::create_directories(directory);
  const std::string name = fmt::format("step_{:06}.host{}.h5", step, process);
  std::filesystem::remove(directory / name);  // Never writes through a link.
  Hdf5File file = Hdf5File::create(directory / name);
  for (const auto& [array_name, array] : batch)
    file.create_dataset(array_name, stored_type(array.dtype), array.shape).write(array.bytes);
  file.close();
  return fmt::format("the batch of step {} is in {}/{}", step, directory.filename().string(), name);
} catch (const std::exception& error) {
  return fmt::format("warning: the batch of step {} could not be kept: {}", step, error.what());
}

void report_inspected(const std::vector<Inspected>& inspected, int64_t step, RunLog& log,
                      Console& console) {
  for (const Inspected& each : inspected) {
    console.info(fmt::format("step {}: {}", step, text_of(each)));
    log.event("inspect", step,
              {{"mean", each.mean},
               {"deviation", each.deviation},
               {"least", each.least},
               {"greatest", each.greatest},
               {"zeros", each.zeros},
               {"nonfinite", each.nonfinite}},
              {{"name", each.name}, {"type", each.type}});
  }
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return file >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

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

}  // namespace tessera
