// SPDX-License-Identifier: Apache-2.0
#include "layers/widths.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/layer_pieces.h"

namespace tessera {

WidthRatios width_ratios(const Parameter& parameter) {
  FanAxes axes = parameter.fans;
  if (axes.in.empty() && axes.out.empty()) axes = matrix_axes(parameter).value_or(FanAxes{});
  WidthRatios ratios;
  bool is_input = true, is_output = true;
  for (const auto& [axis, ratio] : parameter.widths) {
    if (std::ranges::find(axes.in, axis) != axes.in.end()) {
      ratios.in *= ratio;
      is_input = false;
    } else if (axes.out.empty() || std::ranges::find(axes.out, axis) != axes.out.end()) {
      ratios.out *= ratio;
      is_output = false;
    }
  }
  if (!is_input) ratios.initial = is_output ? 1.0 / ratios.in : 1.0 / std::sqrt(ratios.in);
  return ratios;
}

Parameter in_base_model(Parameter parameter) {
  for (Axis& axis : parameter.type.axes)
    if (const auto width = parameter.widths.find(axis.name); width != parameter.widths.end())
      axis.size =
          std::max<int64_t>(1, std::llround(static_cast<double>(axis.size) / width->second));
  return parameter;
}

std::map<std::string, double> relative_widths(const ParameterTable& table,
                                              const std::map<std::string, int64_t>& base) {
  std::map<std::string, double> widths;
  std::vector<std::string> names;
  for (const Parameter& parameter : table.parameters())
    for (const Axis& axis : parameter.type.axes) {
      if (axis.name == kLayersAxis && parameter.stack > 0) continue;
      if (std::ranges::find(names, axis.name) == names.end()) names.push_back(axis.name);
      if (const auto size = base.find(axis.name); size != base.end())
        widths[axis.name] = std::max(
            widths[axis.name], static_cast<double>(axis.size) / static_cast<double>(size->second));
    }
  for (const auto& [axis, size] : base)
    if (!widths.contains(axis))
      fail("mup_base: no weight has an axis '{}'; the model's have {}{}", axis,
           fmt::join(names, ", "), did_you_mean(axis, names));
  return widths;
}

}  // namespace tessera
