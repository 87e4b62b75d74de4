// SPDX-License-Identifier: Apache-2.0
// A missing reshard cannot give wrong numbers: each reshard of a model that changes a layout is
// removed in turn. Either tracing then fails, with the line and a fix, or the numbers stay correct
// and only the communicated bytes change.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/cost.h"
#include "core/compile/spmd/lower.h"
#include "core/compile/spmd/reshard_plan.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/reference_models.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/spmd_case.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Mesh& mesh() {
  static const Mesh kMesh = Mesh::standard({1, 2, 2});
  return kMesh;
}

// The forward pass of a model, traced.
Graph forward(LanguageModel::HParams p, const TrialRules& rules) {
  TransformerLm::HParams& lm = p.lm_tpl.as<TransformerLm::HParams>();
  lm.vocab_size = 40;
  lm.num_layers = 1;
  const AxisRules axis_rules{parse_rules(rules.weights), parse_rules(rules.activations)};
  const std::unique_ptr<BaseModel> model = Template<BaseModel>(p).instantiate();
  Graph graph;
  const TraceScope trace(graph, mesh(), axis_rules);
  const std::vector<Tensor> parameters = parameter_inputs(model->parameters());
  Features features;
  for (const std::string name : {"ids", "labels", "segment_ids", "segment_pos", "weights"}) {
    const DType dtype = name == "weights" ? DType::kF32 : DType::kI32;
    const Type type = make_type(dtype, {{"batch", 4, {}}, {"seq", 12, {}}});
    features.tensors[name] =
        input(name, InputKind::kBatch, apply_rules(axis_rules.activations, mesh(), type));
  }
  const FpropScope scope(parameters, features);
  const ModelOutput result = (*model)(features);
  output("loss", place(result.loss.sum) / place(result.loss.weight));
  return graph;
}

// Copies the graph without one node, a reshard, and adds gradients.
Graph without(const Graph& traced, NodeId left_out) {
  Graph graph;
  const AxisRules no_rules;
  const TraceScope trace(graph, mesh(), no_rules);
  IndexedVector<ValueId, Tensor> values(traced.values().size());
  std::vector<Tensor> parameters;
  for (const GraphInput& each : traced.inputs()) {
    const Tensor value = input(each.name, each.kind, traced.type(each.value));
    values[each.value] = value;
    if (each.kind == InputKind::kParameter) parameters.push_back(value);
  }
  for (const NodeId id : traced.nodes().ids()) {
    const Node& node = traced.node(id);
    const ServeScope serve(node);
    std::vector<Tensor> inputs;
    for (const ValueId value : node.inputs) inputs.push_back(values[value]);
    const bool unchanged =
        node.op->name == "reshard" && inputs[0].type() == node.attributes.get(key::kType);
    const std::vector<Tensor> results =
        id == left_out || unchanged
            ? inputs
            : trace_node(*node.op, inputs, node.attributes, node.site, node.bodies);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      values[node.outputs[i]] = results[i];
      const std::string& name = traced.value(node.outputs[i]).name;
      if (!name.empty()) results[i].named(name);
    }
  }
  const Tensor loss = values[traced.find_output("loss")->value];
  output("loss", loss);
  const std::vector<Tensor> slopes = gradients(loss, parameters);
  for (size_t i = 0; i < slopes.size(); ++i)
    output("gradient of " + graph.describe(parameters[i].id()), slopes[i]);
  verify(graph, mesh());
  return graph;
}

struct Outcome {
  int64_t active = 0, caught = 0;
  std::vector<std::string> survivors;  // "lm.ffn.x: 1.20x the bytes"
};

Outcome try_all(const LanguageModel::HParams& model, const TrialRules& rules) {
  const Graph traced = forward(model, rules);
  const Graph complete = without(traced, kNone);
  const ReferenceInputs inputs = sample_inputs(complete);
  const auto expected = SimulatedMesh(complete, mesh()).run(inputs);
  const auto bytes = [](const Graph& graph) {
    return static_cast<double>(bytes_per_step(collectives(lower(graph, mesh()))));
  };
  const double usual = bytes(complete);
  Outcome outcome;
  for (const NodeId id : traced.nodes().ids()) {
    const Node& node = traced.node(id);
    if (node.op->name != "reshard") continue;
    const Type &from = traced.type(node.inputs[0]), &to = traced.type(node.outputs[0]);
    if (ReshardPlanner(mesh()).plan(from, to).steps.empty()) continue;
    ++outcome.active;
    INFO(rules.name << ", without " << traced.describe(node.outputs[0]) << " of " << node.path
                    << ": " << from.text() << " to " << to.text());
    Graph graph;
    const std::string error = error_of([&] { graph = without(traced, id); });
    if (error != "no error") {
      INFO(error);
      const bool fetched = error.find("is fetched") != std::string::npos;
      REQUIRE((fetched || error.find(".cc:") != std::string::npos));  // The line,
      REQUIRE((error.find("place") != std::string::npos ||            // and a fix.
               error.find("reshard") != std::string::npos ||
               error.find("split both the same way") != std::string::npos ||
               error.find("gather") != std::string::npos));
      ++outcome.caught;
      continue;
    }
    double worst = 0.0;
    for (const auto& [name, values] : SimulatedMesh(graph, mesh()).run(inputs))
      for (size_t i = 0; i < values.size(); ++i)
        worst = std::max(worst, std::abs(values[i] - expected.at(name)[i]));
    REQUIRE(worst < 1e-12);
    outcome.survivors.push_back(fmt::format("{} of {}: {} to {}, {:.2f}x the bytes",
                                            traced.describe(node.outputs[0]), node.path,
                                            from.layout(), to.layout(), bytes(graph) / usual));
  }
  return outcome;
}

std::vector<TrialRules> all_rules() {
  const std::string tensor = "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";
  std::vector<TrialRules> all = strategies();
  all.push_back({"tensor, weights whole", "", "batch -> data, " + tensor});
  all.push_back({"tensor, activations whole", tensor, "batch -> data"});
  all.push_back({"embed of activations", "embed -> mdl", "batch -> data, embed -> mdl"});
  return all;
}

TEST_CASE("a missing reshard is a trace error or changes only the cost of a step") {
  const std::pair<std::string, LanguageModel::HParams> models[] = {{"gpt2", small_gpt2()},
                                                                   {"llama", small_llama()}};
  std::string text;
  for (const auto& [name, model] : models) {
    for (const TrialRules& rules : all_rules()) {
      const Outcome outcome = try_all(model, rules);
      text += fmt::format("{}, {}: {} of {} caught\n", name, rules.name, outcome.caught,
                          outcome.active);
      for (const std::string& survivor : outcome.survivors)
        text += fmt::format("  not: {}\n", survivor);
    }
  }
  REQUIRE(golden_difference("deleted_reshards.txt", text) == "");
}

}  // namespace
}  // namespace tessera
