// SPDX-License-Identifier: Apache-2.0
// Tests of a layer, for authors of layers: its result for given numbers, and its gradients against
// finite differences, in double precision by the reference interpreter; and whether its sharding is
// right on a mesh, of which no device is needed.
//
//   const TestedLayer ffn(Ffn::HParams{.model_dims = 4, .hidden_dims = 6},
//                         "f32[\"batch=2 seq=3 embed=4\"]");
//   ffn.check_gradients();
//
// Any test framework will do; `run_layer_tests` is for programs without one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check/numeric_gradient.h"
#include "core/hparams/template.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"
#include "tasks/config/experiment.h"

namespace tessera {

// What a layer is tried on. The mesh's axes of size 1 tell a mistake as those of any size do.
struct LayerSetting {
  MeshConfig mesh;
  RulesConfig rules;
  Mode mode = Mode::kTrain;
  // Of operands by name and of weights by path; others get sample values.
  ReferenceInputs values = {};
};

// The types of operands by name: {"x", "f32[\"batch=2 seq=3 embed=4\"]"}.
using OperandTypes = std::map<std::string, std::string>;

class TestedLayer {
 public:
  // A layer of one operand, called "x".
  TestedLayer(const Template<UnaryLayer>& layer_tpl, std::string type, LayerSetting setting = {})
      : TestedLayer(
            layer_tpl, {{"x", std::move(type)}},
            [](const UnaryLayer& layer, const NamedTensors& in) { return layer(in.at("x")); },
            std::move(setting)) {}

  // Any layer: `call(layer, operands)` gives its result.
  template <typename Base, typename Call>
  TestedLayer(const Template<Base>& layer_tpl, OperandTypes operands, Call call,
              LayerSetting setting = {})
      : TestedLayer(std::move(operands), std::move(setting)) {
    const std::shared_ptr<const Base> layer = layer_tpl.instantiate();
    table_ = &layer->parameters();
    apply_ = [layer, call](const NamedTensors& in) { return call(*layer, in); };
  }

  // Row-major, in the order of the result's axes.
  std::vector<double> result() const;

  // Error that names the worst element, if the gradient of a weight or a floating operand differs
  // from its finite difference by more than `tolerance`, relative to 1 or to the greatest element
  // of the gradient. The loss is a sum of the result's elements with weights of their own.
  void check_gradients(double tolerance = 1e-6) const;

  std::vector<std::string> weights() const;  // Their paths.

 private:
  TestedLayer(OperandTypes operands, LayerSetting setting);
  Graph traced(bool with_gradients, const Mesh& mesh) const;
  ReferenceInputs values_for(const Graph& graph) const;

  OperandTypes operands_;
  LayerSetting setting_;
  const ParameterTable* table_ = nullptr;
  LossFunction apply_;  // The layer, which it keeps.
};

// Runs each, prints a line for it, and returns the exit code of main: 0, or 1 if any threw.
int run_layer_tests(const std::vector<std::pair<std::string, std::function<void()>>>& checks);

// Error unless both have the same length and no element differs by more than `tolerance`.
void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance = 1e-9);

}  // namespace tessera
