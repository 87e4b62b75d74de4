// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/refit_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/calibrate/refit.h"
#include "tasks/train/train_session.h"

namespace tessera {
namespace {

class RefitRun final : public BaseRun {
 public:
  RefitRun(const ExperimentConfig& config, const RunSetting& setting, const RefitOptions& options,
           const std::vector<Device*>& devices, ProcessGroup& processes)
      : options_(options),
        device_(devices.at(0)->description()),
        console_(console_mode(setting, processes)) {
    const std::string trace = options.trace.string();
    const std::vector<TraceSlice> slices = trace_slices(read_trace(options.trace), trace);
    const std::vector<TracedStep> steps = traced_steps(slices, trace);
    const bool overlaps = std::ranges::any_of(slices, [](const TraceSlice& slice) {
      return slice.track == TraceTrackKind::kCommunication;
    });
    const int64_t traced = 1 + std::ranges::max_element(steps, {}, &TracedStep::device)->device;
    const Session session(
        config,
        {.run_directory = options.trace.parent_path(),
         .devices = std::max(setting.devices, traced),
         .allocates = false,
         .communication = overlaps ? Communication::kOverlapped : Communication::kInline},
        devices, processes);
    mesh_ = session.mesh().text();
    result_ = refit(options.hardware, session.compiled_step(), steps, setting.experiment, trace);
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
