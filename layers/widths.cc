// SPDX-License-Identifier: Apache-2.0
#include "layers/widths.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/trace.h"

namespace tessera {
namespace {

struct Fan {
  double ratio = 1.0;
  bool is_width = false;
};

Fan fan_of(const Parameter& parameter, const std::vector<std::string>& axes) {
  Fan fan;
  for (const std::string& axis : axes) {
    const auto width = parameter.widths.find(axis);
    if (width == parameter.widths.end()) continue;
    fan.ratio *= width->second;
    fan.is_width = true;
  }
  return fan;
}

}  // namespace

WidthRatios width_ratios(const Parameter& parameter) {
  FanAxes axes = parameter.fans;
  if (axes.in.empty() && axes.out.empty())
    axes = matrix_axes(parameter).value_or(FanAxes{{}, parameter.type.names()});
  const Fan in = fan_of(parameter, axes.in);
  if (axes.out.empty() && !in.is_width) axes.out = parameter.type.names();
  const Fan out = fan_of(parameter, axes.out);
  return {in.ratio, out.ratio, out.is_width ? 1.0 / std::sqrt(in.ratio) : 1.0 / in.ratio};
}

Parameter in_base_model(Parameter parameter) {
  for (Axis& axis : parameter.type.axes)
    if (const auto width = parameter.widths.find(axis.name); width != parameter.widths.end())
      axis.size =
          std::max<int64_t>(1, std::llround(static_cast<double>(axis.size) / width->second));
  return parameter;
}

std::map<std::string, int64_t> axis_sizes(const ParameterTable& table) {
  std::map<std::string, int64_t> sizes;
  for (const Parameter& parameter : table.parameters())
    for (const Axis& axis : parameter.type.axes)
      if (parameter.stack == 0 || axis.name != kLayersAxis)
        sizes[axis.name] = std::max(sizes[axis.name], axis.size);
  return sizes;
}

std::map<std::string, double> relative_widths(const ParameterTable& table,
                                              const std::map<std::string, int64_t>& base) {
  const std::map<std::string, int64_t> sizes = axis_sizes(table);
  std::vector<std::string> names;
  for (const auto& [name, size] : sizes) names.push_back(name);
  std::map<std::string, double> widths;
  for (const auto& [axis, size] : base) {
    if (!sizes.contains(axis))
      fail("mup_base: no weight has an axis '{}'; the model's have {}{}", axis,
           fmt::join(names, ", "), did_you_mean(axis, names));
    widths[axis] = static_cast<double>(sizes.at(axis)) / static_cast<double>(size);
  }
  return widths;
}

}  // namespace tessera
