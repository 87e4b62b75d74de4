// SPDX-License-Identifier: Apache-2.0
// Tests for authors of layers: the result for given numbers, gradients against finite differences
// (in f64, by the reference interpreter), and the sharding on a mesh, without any device.
//
//   const TestedLayer ffn(Ffn::HParams{.model_dims = 4, .hidden_dims = 6},
//                         "f32[\"batch=2 seq=3 embed=4\"]");
//   ffn.check_gradients();
//
// Use any test framework, or `run_layer_tests` for a program without one.
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
#include "tasks/task/config/experiment.h"

namespace tessera {

// The setting in which a layer is tested. Mesh axes of size 1 find the same layout errors as larger
// ones.
struct LayerSetting {
  MeshConfig mesh;
  RulesConfig rules;
  Mode mode = Mode::kTrain;
  // Operands by name and weights by path; the others get sample values.
  ReferenceInputs values = {};
};

// Types of operands by name: {"x", "f32[\"batch=2 seq=3 embed=4\"]"}. They are also the features of
// the batch: "segment_ids" marks padding.
using OperandTypes = std::map<std::string, std::string>;

class TestedLayer {
 public:
  // A layer with one operand, called "x".
  TestedLayer(const Template<UnaryLayer>& layer_tpl, std::string type, LayerSetting setting = {})
      : TestedLayer(
            layer_tpl, {{"x", std::move(type)}},
            [](const UnaryLayer& layer, const NamedTensors& in) { return layer(in.at("x")); },
            std::move(setting)) {}

  // Any layer: `call(layer, operands)` returns its result.
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
  // The auxiliary losses and the metrics that the layer and those below it add, by full name.
  std::map<std::string, std::vector<double>> losses() const;
  std::map<std::string, std::vector<double>> metrics() const;

  // Error, naming the worst element, if the gradient of a weight or floating operand differs from
  // finite differences by more than `tolerance`, relative to max(1, largest element of the
  // gradient). The loss is a weighted sum of the result's elements
  // plus the auxiliary losses.
  void check_gradients(double tolerance = 1e-6) const;

  std::vector<std::string> weights() const;  // The paths of all weights.

 private:
  TestedLayer(OperandTypes operands, LayerSetting setting);
  Graph traced(bool with_gradients, const Mesh& mesh) const;
  std::map<std::string, std::vector<double>> outputs(const std::string& prefix) const;
  ReferenceInputs values_for(const Graph& graph) const;

  OperandTypes operands_;
  LayerSetting setting_;
  const ParameterTable* table_ = nullptr;
  LossFunction apply_;  // Owns the layer.
};

// Runs each test, prints a line for it, and returns the exit code: 0, or 1 if any failed.
int run_layer_tests(const std::vector<std::pair<std::string, std::function<void()>>>& checks);

// Error unless both have the same length and all elements differ by at most `tolerance`.
void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance = 1e-9);

}  // namespace tessera
