// SPDX-License-Identifier: Apache-2.0
#include "tests/support/layer_trial.h"

#include <cmath>
#include <cstring>

#include "layers/parameter.h"
#include "tests/support/catch.h"

namespace tessera {

Region whole_of(const Parameter& parameter) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : parameter.type.axes) sizes.push_back(axis.size);
  return Region::whole(std::move(sizes));
}

std::vector<double> initial_values(Parameter parameter, uint64_t seed, int threads) {
  parameter.type.dtype = DType::kF32;
  std::vector<float> values(static_cast<size_t>(parameter.type.elements()));
  initialize(parameter, seed, whole_of(parameter), std::as_writable_bytes(std::span(values)),
             threads);
  return {values.begin(), values.end()};
}

ReferenceInputs distinct_values(const ParameterTable& table,
                                const std::vector<std::pair<std::string, size_t>>& inputs) {
  ReferenceInputs result;
  double frequency = 0.37;
  const auto fill = [&](const std::string& name, size_t count) {
    frequency += 0.11;
    for (size_t i = 0; i < count; ++i)
      result[name].push_back(std::sin(frequency * static_cast<double>((i + 1) * (i + 2))));
  };
  for (const Parameter& each : table.parameters())
    fill(each.path, static_cast<size_t>(each.type.elements()));
  for (const auto& [name, count] : inputs) fill(name, count);
  return result;
}

void require_close(const std::vector<double>& got, const std::vector<double>& expected,
                   double margin) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    REQUIRE(got[i] == Approx(expected[i]).margin(margin));
  }
}

LayerTrial::LayerTrial(Mode mode, Mesh mesh, AxisRules rules)
    : mesh_(std::move(mesh)), rules_(std::move(rules)), trace_(graph_, mesh_, rules_) {
  features_.mode = mode;
  features_.step = in("step", "i32[\"\"]", {3});
}

Tensor LayerTrial::in(const std::string& name, const std::string& type,
                      const std::vector<double>& values) {
  inputs_[name] = values;
  if (const GraphInput* known = graph_.find_input(name)) return {&graph_, known->value};
  return input(name, InputKind::kBatch, parse_type(type)).named(name);
}

void LayerTrial::declare(const ParameterTable& table, const ReferenceInputs& weights) {
  parameters_ = parameter_inputs(table);
  for (const Parameter& each : table.parameters()) {
    const auto given = weights.find(each.path);
    inputs_[each.path] = given != weights.end() ? given->second : initial_values(each);
  }
}

ReferenceArray LayerTrial::evaluated(const Tensor& result) {
  output("result", result);
  return evaluate(graph_, inputs_, mesh_).at("result");
}

std::vector<std::string> weight_list(const ParameterTable& table) {
  std::vector<std::string> list;
  for (const Parameter& each : table.parameters())
    list.push_back(fmt::format("{} {} {} {:g}", each.path, each.type.text_sized(),
                               enum_name(each.init.kind), each.init.scale));
  return list;
}

}  // namespace tessera
