// SPDX-License-Identifier: Apache-2.0
#include "layers/cast_weights.h"

#include <string>

#include <fmt/core.h>

#include "core/graph/trace.h"
#include "core/ops/elementwise.h"

namespace tessera {
namespace {

std::string state_name(const Parameter& parameter, DType dtype) {
  return fmt::format("cache/{}/{}", dtype_name(dtype), parameter.path);
}

}  // namespace

CastWeights::CastWeights(const ParameterTable& table) : graph_(traced_graph()), table_(table) {}

Tensor CastWeights::get(int32_t index, DType dtype) {
  Tensor& tensor = made_[{index, dtype}];
  if (tensor.valid()) return tensor;
  const Parameter& parameter = table_.at(index);
  Type type = type_at_rest(parameter);
  type.dtype = dtype;
  const std::string name = state_name(parameter, dtype);
  tensor = Tensor(&graph_, graph_.add_input(name, InputKind::kState, type));
  tensor.named(parameter.path);
  return tensor;
}

void CastWeights::trace_casts(const Graph& reading, const ParameterTable& table,
                              const std::vector<Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = table.at(static_cast<int32_t>(i));
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const GraphInput* state = reading.find_input(state_name(parameter, dtype));
      if (state == nullptr) continue;
      input(state->name, InputKind::kState, reading.type(state->value));
      traced_graph().add_update(state->name, cast(parameters[i], dtype).id());
    }
  }
}

}  // namespace tessera
