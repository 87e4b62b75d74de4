// SPDX-License-Identifier: Apache-2.0
#include "layers/parameter.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/trace.h"

namespace tessera {

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

std::string ParameterTable::text() const {
  size_t path_width = 0, type_width = 0;
  for (const Parameter& each : parameters_) {
    path_width = std::max(path_width, each.path.size());
    type_width = std::max(type_width, each.type.text_sized().size());
  }
  std::string text;
  for (const Parameter& each : parameters_)
    text += fmt::format("{:<{}}  {:<{}}  {} {:g}\n", each.path, path_width, each.type.text_sized(),
                        type_width, enum_name(each.init.kind), each.init.scale);
  return text;
}

std::vector<Tensor> parameter_inputs(const ParameterTable& table) {
  std::vector<Tensor> inputs;
  inputs.reserve(table.parameters().size());
  for (const Parameter& each : table.parameters()) {
    const ErrorContext where(each.path);
    const Type at_rest = apply_rules(traced_rules().weights, traced_mesh(), each.type);
    inputs.push_back(input(each.path, InputKind::kParameter, at_rest));
  }
  return inputs;
}

}  // namespace tessera
