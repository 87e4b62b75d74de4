// SPDX-License-Identifier: Apache-2.0
#include "layers/parameter.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"

namespace tessera {
namespace {

std::string layer_of(const Parameter& parameter) {
  const size_t dot = parameter.path.rfind('.');
  return dot == std::string::npos ? "" : parameter.path.substr(0, dot);
}

// A rule about an axis that no weight of the layer has is an error.
void check_layer_rules(const ParameterTable& table) {
  for (const Parameter& ruled : table.parameters()) {
    const std::string layer = layer_of(ruled);
    std::vector<std::string> axes;
    for (const Parameter& each : table.parameters())
      if (!ruled.rules.empty() && layer_of(each) == layer)
        for (const Axis& axis : each.type.axes)
          if (std::find(axes.begin(), axes.end(), axis.name) == axes.end())
            axes.push_back(axis.name);
    for (const AxisRule& rule : ruled.rules) {
      if (std::find(axes.begin(), axes.end(), rule.axis) != axes.end()) continue;
      const ErrorContext where(layer);
      fail("rules.weights \"{}\": no weight of this layer has an axis '{}'; they have {}{}",
           rules_text(ruled.rules), rule.axis, fmt::join(axes, ", "),
           did_you_mean(rule.axis, axes));
    }
  }
}

}  // namespace

int32_t ParameterTable::add(Parameter parameter) {
  if (find(parameter.path) != nullptr)
    fail("weight '{}' is declared twice; give one of the layers or weights another name",
         parameter.path);
  parameters_.push_back(std::move(parameter));
  return static_cast<int32_t>(parameters_.size()) - 1;
}

const Parameter* ParameterTable::find(std::string_view path) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& each) { return each.path == path; });
  return found == parameters_.end() ? nullptr : &*found;
}

int64_t ParameterTable::elements() const {
  int64_t total = 0;
  for (const Parameter& each : parameters_) total += each.type.elements();
  return total;
}

Type stored_type(const Parameter& parameter) {
  if (!parameter.layout.empty()) return {parameter.type.dtype, parameter.layout, {}};
  return apply_rules(overlay_rules(parameter.rules, traced_rules().weights), traced_mesh(),
                     parameter.type);
}

std::vector<Tensor> parameter_inputs(const ParameterTable& table) {
  check_layer_rules(table);
  std::vector<Tensor> inputs;
  inputs.reserve(table.parameters().size());
  for (const Parameter& each : table.parameters()) {
    const ErrorContext where(each.path);
    inputs.push_back(input(each.path, InputKind::kParameter, stored_type(each)));
  }
  return inputs;
}

}  // namespace tessera
