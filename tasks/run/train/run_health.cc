// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/run_health.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/hdf5.h"

namespace tessera {

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

}  // namespace tessera
