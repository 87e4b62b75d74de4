// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate --trace=RUN: fits a hardware file to what a run measured.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/io/file.h"
#include "core/runtime/executor/launch_trace.h"
#include "tasks/planner/calibrate/fit.h"
#include "tasks/planner/calibrate/run_trace.h"
#include "tasks/planner/prediction.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

constexpr double kMilli = 1e-3;
constexpr size_t kTitleBytes = 60;  // Longest title of a hardware file.

struct MeasuredStep {
  std::vector<MeasuredLaunch> launches;
  std::string text;      // "2 traced steps".
  double seconds = 0.0;  // The time of the step; 0: unknown.
};

struct Refit {
  Hardware fitted;  // With the measured times of the launches.
  // Says what was fitted: the figures and the predicted step time before and after.
  std::string text;
};

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

// "NVIDIA H100 SXM, fitted to c4.Spmd1B"
std::string fitted_title(const Hardware& start, const std::string& experiment) {
  const std::string title = fmt::format("{}, fitted to {}", start.title, experiment);
  return title.size() <= kTitleBytes ? title : title.substr(0, kTitleBytes);
}

// Seconds.
double predicted(const CompiledStep& step, Hardware hardware) {
  // The trace has the launches of a step, not the host's work beside them.
  hardware.host.reset();
  return predict(step, hardware).step_seconds;
}

std::string fitted_text(const std::vector<FittedField>& fields, int64_t product_shapes) {
  std::string text =
      fmt::format("  {:<36} {:>12} {:>12}  {}\n", "fitted", "before", "after", "types");
  for (const FittedField& field : fields)
    text += fmt::format("  {:<36} {:>12.4g} {:>12.4g}  {}\n", field.name, field.before, field.after,
                        field.types);
  if (product_shapes > 0)
    text += fmt::format("  {} shapes of products have their measured share\n", product_shapes);
  return text;
}

// `start`: whose peaks are kept. `experiment` names the run.
Refit refit(const Hardware& start, const CompiledStep& step, const MeasuredStep& measured,
            const std::string& experiment) {
  Refit result{start, fmt::format("{} of {} on {}; {} types of launches\n\n", measured.text,
                                  experiment, step.mesh.text(), measured.launches.size())};
  Hardware& fitted = result.fitted;
  fitted.title = fitted_title(start, experiment);
  fitted.launches.clear();
  const std::vector<FittedField> fields = fit_hardware(fitted, measured.launches, step.mesh);
  result.text += fitted_text(fields, add_product_points(fitted, measured.launches, step.mesh));
  const double before = predicted(step, start), after = predicted(step, fitted);
  for (const MeasuredLaunch& launch : measured.launches)
    fitted.launches[launch_type(*launch.graph, *launch.node)] = launch.seconds;
  const double with_launches = predicted(step, fitted);

  // Without a measured step the launches are all that is known of it.
  const bool has_step = measured.seconds > 0.0;
  const double expected = has_step ? measured.seconds : with_launches;
  result.text += fmt::format("\n  {:<36} {:>12}  {}\n", "step", "ms", "error");
  if (has_step)
    result.text += fmt::format("  {:<36} {:>12.3f}\n", "measured", measured.seconds / kMilli);
  const auto add_row = [&](std::string_view name, double seconds) {
    result.text += fmt::format("  {:<36} {:>12.3f}  {:+.1f} %\n", name, seconds / kMilli,
                               100.0 * (seconds / expected - 1.0));
  };
  add_row("predicted before", before);
  add_row("with the fitted file", after);
  add_row("with launch costs, too", with_launches);
  return result;
}

class RefitRun final : public BaseRun {
 public:
  RefitRun(const RunContext& context, const RefitOptions& options)
      : options_(options),
        device_(context.devices.at(0)->description()),
        console_(console_of(context.setting, context.processes)) {
    SessionOptions planned{.run_directory = options.trace.parent_path(),
                           .devices = context.setting.devices,
                           .allocates = false};
    std::optional<Trace> trace;
    if (!is_launches_file(options.trace)) {
      trace.emplace(options.trace);
      planned.devices = std::max(context.setting.devices, trace->devices());
      planned.communication = trace->overlaps ? Communication::kOverlapped : Communication::kInline;
    }
    const Session session(context.config, planned, context.devices, context.processes);
    if (session.sizes().are_given())
      fail(
          "--trace is compared with a step of one size; give --set task.train.phases=[], and the "
          "input the sizes of the phase that was traced");
    const CompiledStep step = session.compiled_step();
    mesh_ = step.mesh.text();
    result_ = refit(options.hardware, step,
                    trace ? trace->measured(step) : launches_in(options.trace, step),
                    context.setting.experiment);
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

std::unique_ptr<BaseRun> refit_run(const RunContext& context, const RefitOptions& options) {
  return std::make_unique<RefitRun>(context, options);
}

}  // namespace tessera
