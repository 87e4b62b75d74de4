// SPDX-License-Identifier: Apache-2.0
// Builds a layer from its template and runs it on given values with the reference interpreter.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/devices/reference/interpreter.h"
#include "core/graph/trace.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"

namespace tessera {

// All of the weight.
Region whole_of(const Parameter& parameter);
// The initial values of the whole weight, drawn in f32.
std::vector<double> initial_values(Parameter parameter, uint64_t seed = 1, int threads = 1);

// Different values between -1 and 1 for every weight, and for inputs of these sizes after them.
ReferenceInputs distinct_values(const ParameterTable& table,
                                const std::vector<std::pair<std::string, size_t>>& inputs);

// Fails unless the values are equal up to `margin` and a relative rounding error.
void require_close(const std::vector<double>& got, const std::vector<double>& expected,
                   double margin = 1e-12);

class LayerTrial {
 public:
  explicit LayerTrial(Mode mode = Mode::kEval, Mesh mesh = {}, AxisRules rules = {});

  // Adds an input with its values, or returns the existing input of this name.
  Tensor in(const std::string& name, const std::string& type, const std::vector<double>& values);

  // Adds an input as a feature of the batch.
  void feature(const std::string& name, const std::string& type,
               const std::vector<double>& values) {
    features_.tensors[name] = in(name, type, values);
  }

  // Builds the layer, declares its weights and returns the result of `call(layer)`.
  template <typename Base, typename Call>
  ReferenceArray run(const Template<Base>& layer_tpl, const ReferenceInputs& weights, Call call) {
    const std::unique_ptr<Base> layer = layer_tpl.instantiate();
    declare(layer->parameters(), weights);
    const FpropScope scope(parameters_, features_);
    return evaluated(call(*layer));
  }
  // For a layer of one operand: only the values.
  std::vector<double> apply(const Template<UnaryLayer>& layer_tpl, const Tensor& x,
                            const ReferenceInputs& weights = {}) {
    return run(layer_tpl, weights, [&](const UnaryLayer& layer) { return layer(x); }).values;
  }

  Graph& graph() { return graph_; }
  const ReferenceInputs& inputs() const { return inputs_; }

 private:
  void declare(const ParameterTable& table, const ReferenceInputs& weights);
  ReferenceArray evaluated(const Tensor& result);

  Mesh mesh_;
  AxisRules rules_;
  Graph graph_;
  TraceScope trace_;
  Features features_;
  ReferenceInputs inputs_;
  std::vector<Tensor> parameters_;
};

// "path type initialiser scale" of each weight, in the order of declaration.
std::vector<std::string> weight_list(const ParameterTable& table);

}  // namespace tessera
