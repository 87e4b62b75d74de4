// SPDX-License-Identifier: Apache-2.0
#include "tasks/calibrate/refit.h"

#include <cstdint>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/runtime/executor/launch_type.h"
#include "tasks/calibrate/fit.h"
#include "tasks/plan/prediction.h"

namespace tessera {
namespace {

constexpr double kMilli = 1e-3;
constexpr size_t kTitleBytes = 60;  // Longest title of a hardware file.

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

std::string heading(const std::vector<TracedStep>& steps, const std::string& experiment,
                    const Mesh& mesh, size_t types) {
  std::set<int64_t> numbers;
  for (const TracedStep& each : steps) numbers.insert(each.step);
  return fmt::format("{} traced steps of {} on {}; {} types of launches\n\n", numbers.size(),
                     experiment, mesh.text(), types);
}

}  // namespace

Refit refit(const Hardware& start, const CompiledStep& step, const std::vector<TracedStep>& steps,
            const std::string& experiment, const std::string& where) {
  const std::vector<MeasuredLaunch> launches =
      measured_launches(steps, step.stages, step.mesh, where);
  Refit result{start, heading(steps, experiment, step.mesh, launches.size())};
  Hardware& fitted = result.fitted;
  fitted.title = fitted_title(start, experiment);
  fitted.launches.clear();
  const std::vector<FittedField> fields = fit_hardware(fitted, launches, step.mesh);
  result.text += fitted_text(fields, add_product_points(fitted, launches, step.mesh));
  const double measured = median_step(steps);
  result.text += fmt::format("\n  {:<36} {:>12}  {}\n  {:<36} {:>12.3f}\n", "step", "ms", "error",
                             "measured", measured / kMilli);
  const auto add_row = [&](std::string_view name, const Hardware& hardware) {
    const double seconds = predicted(step, hardware);
    result.text += fmt::format("  {:<36} {:>12.3f}  {:+.1f} %\n", name, seconds / kMilli,
                               100.0 * (seconds / measured - 1.0));
  };
  add_row("predicted before", start);
  add_row("with the fitted file", fitted);
  for (const MeasuredLaunch& launch : launches)
    fitted.launches[launch_type(*launch.graph, *launch.node)] = launch.seconds;
  add_row("with launch costs, too", fitted);
  return result;
}

}  // namespace tessera
