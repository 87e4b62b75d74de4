// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/refit.h"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "core/runtime/executor/launch_type.h"
#include "tasks/planner/prediction.h"

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

}  // namespace

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

}  // namespace tessera
