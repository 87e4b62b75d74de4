// SPDX-License-Identifier: Apache-2.0
#include "tasks/calibrate/refit.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/executor/launch_type.h"
#include "tasks/calibrate/fit.h"
#include "tasks/calibrate/traced_launches.h"
#include "tasks/logging/console.h"
#include "tasks/plan/prediction.h"
#include "tasks/train/train_session.h"

namespace tessera {
namespace {

constexpr double kMilli = 1e-3;
constexpr size_t kTitleBytes = 60;  // Longest title of a hardware file.

// "NVIDIA H100 SXM, fitted to c4.Spmd1B"
std::string fitted_title(const Hardware& start, const std::string& experiment) {
  const std::string title = fmt::format("{}, fitted to {}", start.title, experiment);
  return title.size() <= kTitleBytes ? title : title.substr(0, kTitleBytes);
}

class RefitRun final : public BaseRun {
 public:
  RefitRun(const ExperimentConfig& config, const RunSetting& options, const RefitOptions& refit,
           const std::vector<Device*>& devices, ProcessGroup& processes)
      : options_(options),
        refit_(refit),
        where_(refit.trace.string()),
        device_(devices.at(0)->description()),
        console_(console_mode(options, processes)) {
    const std::vector<TraceSlice> slices = trace_slices(read_trace(refit.trace), where_);
    steps_ = traced_steps(slices, where_);
    const bool overlaps = std::ranges::any_of(slices, [](const TraceSlice& slice) {
      return slice.track == TraceTrackKind::kCommunication;
    });
    const int64_t traced = 1 + std::ranges::max_element(steps_, {}, &TracedStep::device)->device;
    session_.emplace(config,
                     SessionOptions{.run_directory = refit.trace.parent_path(),
                                    .devices = std::max(options.devices, traced),
                                    .allocates = false,
                                    .communication = overlaps ? Communication::kOverlapped
                                                              : Communication::kInline},
                     devices, processes);
    launches_ = measured_launches(steps_, stages(), session_->mesh(), where_);
  }

  int run() override {
    Hardware fitted = refit_.hardware;
    fitted.title = fitted_title(refit_.hardware, options_.experiment);
    fitted.launches.clear();
    std::string fields;
    for (const FittedField& field : fit_hardware(fitted, launches_, session_->mesh()))
      fields += fmt::format("  {:<36} {:>12.4g} {:>12.4g}  {}\n", field.name, field.before,
                            field.after, field.types);
    if (const int64_t shapes = add_product_points(fitted, launches_, session_->mesh()))
      fields += fmt::format("  {} shapes of products have their measured share\n", shapes);
    const double without_launches = predicted(fitted);
    for (const MeasuredLaunch& launch : launches_)
      fitted.launches[launch_type(*launch.graph, *launch.node)] = launch.seconds;
    const std::filesystem::path file = refit_.directory / kFittedHardwareFile;
    std::filesystem::create_directories(refit_.directory);
    write_file_atomically(
        file, hardware_text(fitted, fmt::format("Fitted to {} by runexp --mode=calibrate --trace:\n"
                                                "{} on {}.\nStarted from {}, whose peaks it has.",
                                                where_, session_->mesh().text(), device_,
                                                refit_.hardware.name)));
    console_.info(text(fields, without_launches, predicted(fitted)) +
                  fmt::format("\nwrote {}\n", file.string()));
    return 0;
  }

 private:
  std::vector<StagePlan> stages() {
    return session_->executor().stage_plans(session_->train_program().program());
  }

  double predicted(Hardware hardware) {
    // The trace has the launches of a step, not the host's work beside them.
    hardware.host.reset();
    return predict(stages(), session_->mesh(), session_->tokens_per_step(), hardware).step_seconds;
  }

  std::string text(const std::string& fields, double without_launches, double with_launches) {
    const double step = median_step(steps_);
    std::set<int64_t> numbers;
    for (const TracedStep& each : steps_) numbers.insert(each.step);
    std::string text =
        fmt::format("{} traced steps of {} on {}; {} types of launches\n\n", numbers.size(),
                    options_.experiment, session_->mesh().text(), launches_.size());
    text += fmt::format("  {:<36} {:>12} {:>12}  {}\n", "fitted", "before", "after", "types");
    text += fields + fmt::format("\n  {:<36} {:>12}  {}\n", "step", "ms", "error");
    text += fmt::format("  {:<36} {:>12.3f}\n", "measured", step / kMilli);
    const auto row = [&](std::string_view name, double seconds) {
      text += fmt::format("  {:<36} {:>12.3f}  {:+.1f} %\n", name, seconds / kMilli,
                          100.0 * (seconds / step - 1.0));
    };
    row("predicted before", predicted(refit_.hardware));
    row("with the fitted file", without_launches);
    row("with launch costs, too", with_launches);
    return text;
  }

  RunSetting options_;
  RefitOptions refit_;
  std::string where_, device_;
  Console console_;
  std::vector<TracedStep> steps_;
  std::optional<Session> session_;
  std::vector<MeasuredLaunch> launches_;
};

}  // namespace

std::unique_ptr<BaseRun> refit_run(const ExperimentConfig& config, const RunSetting& options,
                                   const RefitOptions& refit, const std::vector<Device*>& devices,
                                   ProcessGroup& processes) {
  return std::make_unique<RefitRun>(config, options, refit, devices, processes);
}

}  // namespace tessera
