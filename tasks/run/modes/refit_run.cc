// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/modes/refit_run.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/planner/calibrate/refit.h"
#include "tasks/planner/calibrate/traced_launches.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

// The steps of a trace, and what they say of the session that compiles the program.
struct Trace {
  explicit Trace(const std::filesystem::path& file) : where(file.string()) {
    const std::vector<TraceSlice> slices = trace_slices(read_trace(file), where);
    steps = traced_steps(slices, where);
    overlaps = std::ranges::any_of(slices, [](const TraceSlice& slice) {
      return slice.track == TraceTrackKind::kCommunication;
    });
  }

  int64_t devices() const {
    return 1 + std::ranges::max_element(steps, {}, &TracedStep::device)->device;
  }
  MeasuredStep measured(const CompiledStep& step) const {
    std::set<int64_t> numbers;
    for (const TracedStep& each : steps) numbers.insert(each.step);
    return {measured_launches(steps, step.stages, step.mesh, where),
            fmt::format("{} traced steps", numbers.size()), median_step(steps)};
  }

  std::string where;
  std::vector<TracedStep> steps;
  bool overlaps = false;
};

MeasuredStep launches_in(const std::filesystem::path& file, const CompiledStep& step) {
  return {measured_launches(read_hardware(file).launches, step.stages, file.string()),
          "measured launches"};
}

class RefitRun final : public BaseRun {
 public:
  RefitRun(const ExperimentConfig& config, const RunSetting& setting, const RefitOptions& options,
           const std::vector<Device*>& devices, ProcessGroup& processes)
      : options_(options),
        device_(devices.at(0)->description()),
        console_(console_mode(setting, processes)) {
    SessionOptions planned{.run_directory = options.trace.parent_path(),
                           .devices = setting.devices,
                           .allocates = false};
    std::optional<Trace> trace;
    if (!is_launches_file(options.trace)) {
      trace.emplace(options.trace);
      planned.devices = std::max(setting.devices, trace->devices());
      planned.communication = trace->overlaps ? Communication::kOverlapped : Communication::kInline;
    }
    const Session session(config, planned, devices, processes);
    const CompiledStep step = session.compiled_step();
    mesh_ = step.mesh.text();
    result_ =
        refit(options.hardware, step,
              trace ? trace->measured(step) : launches_in(options.trace, step), setting.experiment);
  }

  int run() override {
    const std::filesystem::path file = options_.directory / kFittedHardwareFile;
    std::filesystem::create_directories(options_.directory);
    write_file_atomically(
        file, hardware_text(
                  result_.fitted,
                  fmt::format("Fitted to {} by runexp --mode=calibrate --trace:\n"
                              "{} on {}.\nStarted from {}, whose peaks it has.",
                              options_.trace.string(), mesh_, device_, options_.hardware.name)));
    console_.info(fmt::format("{}\nwrote {}\n", result_.text, file.string()));
    return 0;
  }

 private:
  RefitOptions options_;
  std::string device_, mesh_;
  Console console_;
  Refit result_;
};

}  // namespace

std::unique_ptr<BaseRun> refit_run(const ExperimentConfig& config, const RunSetting& setting,
                                   const RefitOptions& options, const std::vector<Device*>& devices,
                                   ProcessGroup& processes) {
  return std::make_unique<RefitRun>(config, setting, options, devices, processes);
}

}  // namespace tessera
