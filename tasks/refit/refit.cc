// SPDX-License-Identifier: Apache-2.0
#include "tasks/refit/refit.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/ops/reshard.h"
#include "core/passes/cost.h"
#include "tasks/calibrate/hardware_text.h"
#include "tasks/launch_costs/launch_costs.h"
#include "tasks/logging/console.h"
#include "tasks/plan/prediction.h"
#include "tasks/refit/fit.h"
#include "tasks/refit/matched_launches.h"
#include "tasks/refit/traced_steps.h"
#include "tasks/train/train_session.h"

namespace tessera {
namespace {

constexpr double kMilli = 1e-3;
constexpr size_t kTitleBytes = 60;  // Of a hardware file.

MeasuredLaunch measured(const MatchedLaunches& launches) {
  const Graph& graph = *launches.graph;
  const Node& node = *launches.node;
  return {.type = launches.type,
          .work = launch_work(node),
          .count = std::ssize(launches.seconds),
          // A clock may not see a short launch.
          .median = std::max(launches.median(), 1e-9),
          .spread = launches.quantile(0.75) - launches.quantile(0.25),
          .flops = node_flops(graph, node),
          .bytes = is_collective(node) ? static_cast<double>(sent_bytes(graph, node))
                                       : node_bytes(graph, node)};
}

double median_gap(const std::vector<TracedStep>& steps) {
  std::vector<double> gaps;
  for (const TracedStep& step : steps) gaps.insert(gaps.end(), step.gaps.begin(), step.gaps.end());
  return gaps.empty() ? 0.0 : median_of(std::move(gaps));
}

double median_step(const std::vector<TracedStep>& steps) {
  std::vector<double> seconds;
  for (const TracedStep& step : steps) seconds.push_back(step.seconds);
  return median_of(std::move(seconds));
}

// "NVIDIA H100 SXM, fitted to c4.Spmd1B"
std::string fitted_title(const Hardware& start, const std::string& experiment) {
  const std::string title = fmt::format("{}, fitted to {}", start.title, experiment);
  return title.size() <= kTitleBytes ? title : title.substr(0, kTitleBytes);
}

class RefitRun final : public BaseRun {
 public:
  RefitRun(const ExperimentConfig& config, const RunOptions& options, const RefitOptions& refit,
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
    launches_ = match_launches(steps_, stages(), session_->mesh(), where_);
  }

  int run() override {
    const double gap = median_gap(steps_), step = median_step(steps_);
    FittedHardware fitted = fit_hardware(refit_.hardware, launches_, gap, session_->mesh());
    fitted.hardware.title = fitted_title(refit_.hardware, options_.experiment);
    std::vector<MeasuredLaunch> rows;
    for (const MatchedLaunches& launches : launches_) rows.push_back(measured(launches));
    const LaunchCosts costs({.experiment = options_.experiment,
                             .device = device_,
                             .mesh = session_->mesh().text(),
                             .step_seconds = step,
                             .gap = gap},
                            std::move(rows));
    write_files(fitted.hardware, costs);
    console_.info(text(fitted, costs));
    return 0;
  }

 private:
  std::vector<StagePlan> stages() {
    return session_->executor().stage_plans(session_->train_program().program());
  }

  double predicted(const Hardware& hardware, const LaunchCosts* costs) {
    // The trace has the launches of a step, not the host's work beside them.
    Hardware launches_only = hardware;
    launches_only.host.reset();
    return predict(stages(), session_->mesh(), session_->tokens_per_step(), launches_only,
                   std::nullopt, costs)
        .step_seconds;
  }

  void write_files(const Hardware& hardware, const LaunchCosts& costs) const {
    std::filesystem::create_directories(refit_.directory);
    write_file_atomically(
        refit_.directory / kRefittedHardwareFile,
        hardware_text(hardware, fmt::format("Fitted to {} by runexp --mode=calibrate --trace.\n"
                                            "Started from {}, whose peaks it has.",
                                            where_, refit_.hardware.name)));
    write_file_atomically(refit_.directory / kLaunchCostsFile, costs.json());
  }

  std::string text(const FittedHardware& fitted, const LaunchCosts& costs) {
    const double step = costs.run().step_seconds;
    std::set<int64_t> numbers;
    for (const TracedStep& each : steps_) numbers.insert(each.step);
    std::string text =
        fmt::format("{} traced steps of {} on {}; {} types of launches\n\n", numbers.size(),
                    options_.experiment, costs.run().mesh, launches_.size());
    text += fmt::format("  {:<28} {:>12} {:>12}  {}\n", "fitted", "before", "after", "types");
    for (const FittedField& field : fitted.fields)
      text += fmt::format("  {:<28} {:>12.4g} {:>12.4g}  {}\n", field.name, field.before,
                          field.after, field.types);
    if (fitted.shapes > 0)
      text += fmt::format("  {} shapes of products have their measured share\n", fitted.shapes);
    text += fmt::format("\n  {:<28} {:>12}  {}\n", "step", "ms", "error");
    text += fmt::format("  {:<28} {:>12.3f}\n", "measured", step / kMilli);
    const auto row = [&](std::string_view name, double seconds) {
      text += fmt::format("  {:<28} {:>12.3f}  {:+.1f} %\n", name, seconds / kMilli,
                          100.0 * (seconds / step - 1.0));
    };
    row("predicted before", predicted(refit_.hardware, nullptr));
    row("with the fitted file", predicted(fitted.hardware, nullptr));
    row("with launch costs, too", predicted(fitted.hardware, &costs));
    return text + fmt::format("\nwrote {} and {}\n",
                              (refit_.directory / kRefittedHardwareFile).string(),
                              (refit_.directory / kLaunchCostsFile).string());
  }

  RunOptions options_;
  RefitOptions refit_;
  std::string where_, device_;
  Console console_;
  std::vector<TracedStep> steps_;
  std::optional<Session> session_;
  std::vector<MatchedLaunches> launches_;
};

}  // namespace

std::unique_ptr<BaseRun> refit_run(const ExperimentConfig& config, const RunOptions& options,
                                   const RefitOptions& refit, const std::vector<Device*>& devices,
                                   ProcessGroup& processes) {
  return std::make_unique<RefitRun>(config, options, refit, devices, processes);
}

}  // namespace tessera
