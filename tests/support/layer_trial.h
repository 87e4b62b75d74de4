// SPDX-License-Identifier: Apache-2.0
// A layer made from its template and run on given numbers by the reference interpreter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/backend/reference/interpreter.h"
#include "core/graph/trace.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"

namespace tessera {

class LayerTrial {
 public:
  explicit LayerTrial(Mode mode = Mode::kEval, Mesh mesh = {}, AxisRules rules = {});

  // An input of the trace and its values; the same tensor when asked again.
  Tensor in(const std::string& name, const std::string& type, const std::vector<double>& values);

  // Makes the layer, declares its weights and calls `call(layer)` for the result.
  template <typename Base, typename Call>
  ReferenceArray run(const Template<Base>& layer_tpl, const ReferenceInputs& weights, Call call) {
    const std::unique_ptr<Base> layer = layer_tpl.instantiate();
    declare(layer->parameters(), weights);
    const FpropScope scope(parameters_, features_);
    return evaluated(call(*layer));
  }
  // Of a layer of one operand; the values alone.
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

// "path type initialiser scale", one a weight, as the layer declares them.
std::vector<std::string> weight_list(const ParameterTable& table);

}  // namespace tessera
