// SPDX-License-Identifier: Apache-2.0
// Every weight of a model, in the order its layers declare them: name, type, initial values. The
// numbers themselves live in the executor's arena; nothing here holds them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/rules.h"
#include "core/graph/tensor.h"
#include "core/hparams/layer_params.h"

namespace tessera {

// The axis on which Repeated stacks the weights of its block.
inline constexpr std::string_view kLayersAxis = "layers";

// Which axes of a weight count as inputs and outputs for the initialisers that scale by them. Both
// empty: the last axis is the output and the one before it the input, times all earlier ones (Pax's
// reading of a convolution kernel); a single axis is both.
struct FanAxes {
  std::vector<std::string> in;
  std::vector<std::string> out;
};

inline WeightInit zeros() { return {InitKind::kConstant, 0.0}; }
inline WeightInit ones() { return {InitKind::kConstant, 1.0}; }

struct Parameter {
  std::string path;  // "lm.transformer.x_layers[3].ffn.up", or x_layers[] when stacked.
  Type type;         // Global, unsplit, in the param dtype; stacked: `layers` leads.
  WeightInit init;
  FanAxes fans;
  std::string random_path;      // `path` with its first layer index left out: x_layers[].
  int64_t layer = -1;           // That index, or -1. Slice i of a stacked weight has index i.
  int64_t stack = 0;            // Layers stacked; 0: not stacked.
  std::vector<AxisRule> rules;  // Its layer's own, before the experiment's.
  std::vector<Axis> layout;     // As declared, if that splits axes; no rule then counts.
};

class ParameterTable {
 public:
  // Returns the parameter's position. Error if the path is taken.
  int32_t add(Parameter parameter);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& at(int32_t index) const { return parameters_[static_cast<size_t>(index)]; }
  const Parameter* find(std::string_view path) const;
  int64_t elements() const;

 private:
  std::vector<Parameter> parameters_;
};

// Its type as it lies on the traced mesh: as declared, or as the rules say.
Type type_at_rest(const Parameter& parameter);

// One graph input for each parameter, of kind kParameter and named by its path, laid out at rest as
// type_at_rest says. Error for a layer's rule about an axis that none of its weights has.
std::vector<Tensor> parameter_inputs(const ParameterTable& table);

}  // namespace tessera
