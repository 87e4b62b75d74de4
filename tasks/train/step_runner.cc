// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/step_runner.h"

#include <utility>

#include <fmt/format.h>

namespace tessera {

StepRunner::StepRunner(Session& session, const std::optional<ProfileWindow>& window,
                       std::filesystem::path trace_file, Console& console)
    : session_(session),
      window_(session.processes().is_first() ? window : std::nullopt),
      trace_file_(std::move(trace_file)),
      console_(console) {}

// The trace is written after the last step of the window or of the run.
StepResult StepRunner::run(const Batch& batch, int64_t step) {
  const int64_t taken = taken_++;
  const int64_t end = window_ ? window_->start + window_->steps : 0;
  if (!window_ || taken < window_->start || taken >= end) return run_counted(batch, step);
  trace_.begin_step(step);
  session_.executor().observe(trace_.observer());
  const StepResult result = run_counted(batch, step);
  session_.executor().observe({});
  if (taken + 1 == end || step + 1 == session_.train().num_train_steps) {
    trace_.write(trace_file_);
    console_.info(fmt::format("{} holds the times of {} steps; it opens in ui.perfetto.dev",
                              trace_file_.string(), taken + 1 - window_->start));
  }
  return result;
}

StepResult StepRunner::run_counted(const Batch& batch, int64_t step) {
  const int64_t before = session_.bytes_sent();
  StepResult result = session_.train_program().run(batch, step);
  sent_ += session_.bytes_sent() - before;
  return result;
}

std::map<std::string, double> StepRunner::traffic(int64_t devices_here) const {
  if (session_.mesh().num_devices() == 1 || taken_ == 0) return {};
  return {{"sent_bytes_per_step",
           static_cast<double>(sent_) / static_cast<double>(taken_ * devices_here)}};
}

}  // namespace tessera
