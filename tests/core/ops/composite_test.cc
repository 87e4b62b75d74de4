// SPDX-License-Identifier: Apache-2.0
// Composite ops: their types and errors; decomposition and gradient must have the types of the op.
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"

namespace tessera {
namespace {

// A trace on a mesh of replica, data=2 and mdl=2, and inputs by type.
class Traced {
 public:
  Tensor in(const std::string& name, const std::string& type) {
    return input(name, InputKind::kBatch, parse_type(type)).named(name);
  }
  const Node& last() const { return graph.nodes().back(); }

  Mesh mesh = Mesh::standard({1, 2, 2});
  AxisRules rules;
  Graph graph;
  TraceScope scope{graph, mesh, rules};
};

// Traces the decomposition of `node` on one device and compares its types with the node's.
void require_plain_agrees(const Graph& graph, const Node& node) {
  REQUIRE(node.op->decomposition != nullptr);
  const Mesh one;
  Graph plain;
  const AxisRules rules;
  const TraceScope scope(plain, one, rules);
  std::vector<Tensor> inputs;
  for (const ValueId value : node.inputs)
    inputs.push_back(input("x" + std::to_string(inputs.size()), InputKind::kBatch,
                           local_type(graph.type(value), one)));
  const std::vector<Tensor> outputs = node.op->decomposition(node, inputs);
  REQUIRE(outputs.size() == node.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    INFO(node.op->name << " output " << i);
    REQUIRE(outputs[i].type().text_sized() == graph.type(node.outputs[i]).text_sized());
  }
}

// Of a node with unsplit types: decomposition and gradient, and the gradient's decomposition.
void require_consistent(Traced& traced) {
  const Node node = traced.last();
  require_plain_agrees(traced.graph, node);
  const std::vector<Tensor> cotangents = traced_gradient(traced.graph, node);
  REQUIRE(cotangents.size() == node.inputs.size());
  for (size_t i = 0; i < cotangents.size(); ++i) {
    INFO(node.op->name << " operand " << i);
    const Type& primal = traced.graph.type(node.inputs[i]);
    REQUIRE(cotangents[i].valid() == is_floating(primal.dtype));
    if (cotangents[i]) REQUIRE(cotangents[i].type().text_sized() == primal.text_sized());
  }
  const Node gradient = traced.last();
  if (gradient.op->decomposition != nullptr) require_plain_agrees(traced.graph, gradient);
}

TEST_CASE("Decompositions and gradients of composite ops have the types of the op") {
  Traced t;
  const std::string dtype = GENERATE("f32", "bf16");
  const Tensor x = t.in("x", dtype + "[\"batch=2 seq=3 embed=8\"]");
  const Tensor scale = t.in("scale", "f32[\"embed=8\"]");
  const Tensor bias = t.in("bias", "f32[\"embed=8\"]");
  const Tensor step = t.in("step", "i32[\"\"]");
  const Tensor positions = t.in("positions", "i32[\"batch=2 seq=3\"]");

  SECTION("softmax") { softmax(x, "embed"), require_consistent(t); }
  SECTION("rms_norm") { rms_norm(x, scale, "embed", 1e-6), require_consistent(t); }
  SECTION("rms_norm without scale") { rms_norm(x, {}, "embed", 1e-6), require_consistent(t); }
  SECTION("layer_norm") { layer_norm(x, scale, bias, "embed", 1e-6), require_consistent(t); }
  SECTION("layer_norm without bias") {
    layer_norm(x, scale, {}, "embed", 1e-6), require_consistent(t);
  }
  SECTION("rotary") { rotary(x, positions, "embed"), require_consistent(t); }
  SECTION("rotary, interleaved") {
    rotary(x, positions, "embed", 10000.0, 1.0, RotaryStyle::kInterleaved), require_consistent(t);
  }
  SECTION("dropout") { dropout(x, 0.25, step), require_consistent(t); }
  SECTION("cross_entropy") {
    cross_entropy(x, positions, "embed",
                  {.label_smoothing = 0.1, .z_loss = 1e-4, .soft_cap = 30.0});
    const Node node = t.graph.nodes().front();  // stop_gradients follow it.
    require_plain_agrees(t.graph, node);
    REQUIRE(traced_gradient(t.graph, node)[0].type() == x.type());
    require_plain_agrees(t.graph, t.last());
  }
  SECTION("attention") {
    const Tensor q = t.in("q", dtype + "[\"batch=2 seq=3 heads=4 head_dim=8\"]");
    const Tensor k = t.in("k", dtype + "[\"batch=2 key_seq=3 kv_heads=2 head_dim=8\"]");
    const bool segments = GENERATE(false, true);
    attention(q, k, k,
              {.scale = 0.3, .logit_cap = 5.0, .segment_ids = segments ? positions : Tensor()});
    require_consistent(t);
  }
}

}  // namespace
}  // namespace tessera
