// SPDX-License-Identifier: Apache-2.0
// Composite ops: their types and errors; decomposition and gradient must have the types of the op.
#include <algorithm>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

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

// Checks a node with unsplit types: decomposition and gradient, and the gradient's decomposition.
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

// Rows of operands that composite ops accept on a mesh, and of their errors.

using Types = std::vector<std::string>;
using Tensors = std::vector<Tensor>;

const Mesh kMesh = Mesh::standard({1, 2, 2});

std::string of(const Types& types, const Application& apply) {
  return outcome(kMesh, types, apply);
}

Tensor normed(const Tensors& in) { return rms_norm(in[0], in[1], "embed", 1e-6); }

TEST_CASE("A norm keeps its layout, also along a split axis, and refuses partials") {
  const std::string scale = "f32[\"embed=8\"]";
  REQUIRE(of({"bf16[\"batch/data=4 seq/mdl=4 embed=8\"]", scale}, normed) ==
          "bf16[\"batch/data seq/mdl embed\"]");
  REQUIRE(of({"f32[\"batch=4 embed/mdl=8\"]", "f32[\"embed/mdl=8\"]"}, normed) ==
          "f32[\"batch embed/mdl\"]");
  REQUIRE(of({"f32[\"batch=4 embed/mdl=8\"]", scale}, normed) ==
          "rms_norm: x has embed/mdl, y is f32[\"embed\"]; reshard it to embed/mdl as well");
  REQUIRE(of({"f32[\"batch=4 embed=8\" + sum(mdl)]", scale}, normed) ==
          "rms_norm is not linear; x is partial over mdl; place(x)");
  REQUIRE(of({"f32[\"batch=4 embed=8\"]", "f32[\"embed/mdl=8\"]"}, normed) ==
          "rms_norm: y is f32[\"embed/mdl=8\"], expected f32[\"embed=8\"]; reshard y to \"embed\"");
  REQUIRE(of({"f32[\"batch=4 embed=8\"]", "f32[\"embed=4\"]"}, normed) ==
          "rms_norm: y is f32[\"embed=4\"], expected f32[\"embed=8\"]");
  REQUIRE(of({"f32[\"batch=4 embed=8\"]", scale},
             [](const Tensors& in) { return rms_norm(in[0], {}, "embeds", 1e-6); }) ==
          "rms_norm: x has no axis 'embeds': it is f32[\"batch embed\"]; did you mean 'embed'?");
  REQUIRE(of({"f32[\"batch=4 embed=8\"]", scale, "bf16[\"embed=8\"]"}, [](const Tensors& in) {
            return layer_norm(in[0], in[1], in[2], "embed", 1e-6);
          }) == "layer_norm: y is f32, z is bf16; cast one");
}

TEST_CASE("A norm along an axis that is split into one piece is one op, and keeps the layout") {
  const Mesh mesh = Mesh::standard({1, 4, 1});
  for (const bool inner : {false, true}) {
    const std::string x = inner ? "embed/mdl=8 batch/data=4" : "batch/data=4 embed/mdl=8";
    Trial trial(mesh, {"f32[\"" + x + "\"]", "f32[\"embed/mdl=8\"]"});
    const Tensor y = normed(trial.inputs());
    REQUIRE(y.type() == trial.inputs()[0].type());
    const auto& nodes = trial.graph().nodes();
    REQUIRE(std::ranges::count(nodes, &kRmsNormOp, &Node::op) == 1);
    REQUIRE(std::ranges::count(nodes, &kReduceSumOp, &Node::op) == 0);
  }
}

TEST_CASE("A norm over an inner axis keeps the axis order of its operand") {
  REQUIRE(of({"f32[\"embed=8 batch/data=4\"]", "f32[\"embed=8\"]"}, normed) ==
          "f32[\"embed batch/data\"]");
}

TEST_CASE("The gradient of a norm's scale is partial over the mesh axes that split the rows") {
  Trial trial(kMesh, {"f32[\"batch/data=4 seq/mdl=4 embed=8\"]", "bf16[\"embed=8\"]"});
  normed(trial.inputs());
  const Tensors cotangents = traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  REQUIRE(cotangents[0].type().text() == "f32[\"batch/data seq/mdl embed\"]");
  REQUIRE(cotangents[1].type().text() == "bf16[\"embed\" + sum(data, mdl)]");
}

TEST_CASE("Softmax refuses a split axis") {
  REQUIRE(of({"f32[\"batch=4 embed/mdl=8\"]"}, [](const Tensors& in) {
            return softmax(in[0], "embed");
          }) == "softmax: embed of x is split over mdl; reshard it to unsplit embed");
}

TEST_CASE(
    "Cross-entropy over an unsplit vocabulary is one op; a split vocabulary adds two reshards") {
  const Types whole = {"bf16[\"batch/data=4 vocab=8\"]", "i32[\"batch/data=4\"]"};
  const Types split = {"bf16[\"batch/data=4 vocab/mdl=8\"]", "i32[\"batch/data=4\"]"};
  const Application loss = [](const Tensors& in) {
    return cross_entropy(in[0], in[1], "vocab", {.label_smoothing = 0.1, .z_loss = 0.1}).loss;
  };
  REQUIRE(of(whole, loss) == "f32[\"batch/data\"]");
  REQUIRE(of(split, loss) == "f32[\"batch/data\"]");

  const auto count = [&](const Types& types, std::string_view op) {
    Trial trial(kMesh, types);
    loss(trial.inputs());
    int found = 0;
    for (const Node& node : trial.graph().nodes()) found += node.op->name == op ? 1 : 0;
    return found;
  };
  REQUIRE(count(whole, "reshard") == 0);
  REQUIRE(count(split, "cross_entropy") == 0);
  REQUIRE(count(split, "cross_entropy_shard") == 1);
  REQUIRE(count(split, "reshard") == 2);  // The maximum, and all sums together.
}

TEST_CASE("Cross-entropy refuses labels that do not match its rows, and partial logits") {
  const Application loss = [](const Tensors& in) {
    return cross_entropy(in[0], in[1], "vocab").loss;
  };
  REQUIRE(of({"f32[\"batch/data=4 vocab=8\"]", "i32[\"batch=4\"]"}, loss) ==
          "cross_entropy: y is i32[\"batch=4\"], expected i32[\"batch/data=4\"]; reshard y to "
          "\"batch/data\"");
  REQUIRE(of({"f32[\"batch=4 vocab=8\"]", "f32[\"batch=4\"]"}, loss) ==
          "cross_entropy: y is f32, expected i32");
  REQUIRE(of({"f32[\"batch=4 vocab=8\" + sum(mdl)]", "i32[\"batch=4\"]"}, loss) ==
          "cross_entropy is not linear; x is partial over mdl; place(x)");
}

TEST_CASE("Rotary embedding accepts a partial sum and refuses odd and unknown axes") {
  const Application turned = [](const Tensors& in) { return rotary(in[0], in[1], "head_dim"); };
  const std::string positions = "i32[\"batch/data=4 seq=4\"]";
  REQUIRE(of({"f32[\"batch/data=4 seq=4 head_dim=8\" + sum(mdl)]", positions}, turned) ==
          "f32[\"batch/data seq head_dim\" + sum(mdl)]");
  REQUIRE(of({"f32[\"batch/data=4 seq=4 head_dim=7\"]", positions}, turned) ==
          "rotary: head_dim=7 is odd; it is rotated in pairs");
  REQUIRE(of({"f32[\"batch=4 seq=4 head_dim=8\"]", positions}, turned) ==
          "rotary: x has batch, y has batch/data; reshard x to batch/data (free slice) or gather "
          "y");
  REQUIRE(of({"f32[\"seq=4 head_dim=8\"]", positions}, turned) ==
          "rotary: x has no axis 'batch': it is f32[\"seq head_dim\"]");
}

Tensor attended(const Tensors& in) { return attention(in[0], in[1], in[2], {}); }

TEST_CASE("Attention splits batch and heads") {
  const std::string q = "bf16[\"batch/data=4 seq=4 heads/mdl=4 head_dim=8\"]";
  const std::string kv = "bf16[\"batch/data=4 key_seq=4 kv_heads/mdl=2 head_dim=8\"]";
  REQUIRE(of({q, kv, kv}, attended) == "bf16[\"batch/data seq heads/mdl head_dim\"]");
  const std::string whole = "bf16[\"batch/data=4 key_seq=4 kv_heads=2 head_dim=8\"]";
  REQUIRE(of({q, whole, whole}, attended) ==
          "attention: x has heads/mdl, y has kv_heads; split both the same way with "
          "rules.activations");
}

TEST_CASE("With split query heads a single key head is replicated and its gradient is partial") {
  const std::string kv = "f32[\"batch=4 key_seq=4 kv_heads=1 head_dim=8\"]";
  Trial trial(kMesh, {"f32[\"batch=4 seq=4 heads/mdl=4 head_dim=8\"]", kv, kv});
  attended(trial.inputs());
  const Tensors cotangents = traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  REQUIRE(cotangents[0].type() == trial.inputs()[0].type());
  REQUIRE(cotangents[1].type().text() == "f32[\"batch key_seq kv_heads head_dim\" + sum(mdl)]");
  REQUIRE(cotangents[2].type() == cotangents[1].type());
}

TEST_CASE("Attention refuses mismatched names, orders, sizes and layouts") {
  const std::string q = "f32[\"batch=4 seq=4 heads=4 head_dim=8\"]";
  const std::string kv = "f32[\"batch=4 key_seq=4 kv_heads=2 head_dim=8\"]";
  const std::string split = "f32[\"batch=4 key_seq/mdl=4 kv_heads=2 head_dim=8\"]";
  REQUIRE(of({"f32[\"batch=4 heads=4 seq=4 head_dim=8\"]", kv, kv}, attended) ==
          "attention: x is f32[\"batch heads seq head_dim\"], expected the axes \"batch seq heads "
          "head_dim\" in this order; rename or transpose it");
  REQUIRE(of({q, "f32[\"batch=4 key_seq=4 kv_heads=3 head_dim=8\"]",
              "f32[\"batch=4 key_seq=4 kv_heads=3 head_dim=8\"]"},
             attended) == "attention: heads=4 of x is not a multiple of kv_heads=3 of y");
  REQUIRE(of({q, split, split}, attended) ==
          "attention: x has seq=4, y has key_seq/mdl=4; split both the same way, or neither");
  REQUIRE(of({q, kv, "bf16[\"batch=4 key_seq=4 kv_heads=2 head_dim=8\"]"}, attended) ==
          "attention: x is f32, z is bf16; cast one");
  REQUIRE(of({q, kv, "f32[\"batch=4 key_seq=4 kv_heads=2 head_dim=8\" + sum(mdl)]"}, attended) ==
          "attention is not linear; z is partial over mdl; place(z)");
  REQUIRE(of({q, kv, kv, "i32[\"batch=4 seq=3\"]"}, [](const Tensors& in) {
            return attention(in[0], in[1], in[2], {.segment_ids = in[3]});
          }) == "attention: u is i32[\"batch=4 seq=3\"], expected i32[\"batch=4 seq=4\"]");
}

TEST_CASE("Dropout accepts a partial sum, and rate 0 adds no op") {
  const Application dropped = [](const Tensors& in) { return dropout(in[0], 0.1, in[1]); };
  REQUIRE(of({"f32[\"batch=4 embed/mdl=8\" + sum(data)]", "i32[\"\"]"}, dropped) ==
          "f32[\"batch embed/mdl\" + sum(data)]");
  REQUIRE(of({"f32[\"batch=4\" + max(mdl)]", "i32[\"\"]"}, dropped) ==
          "dropout: x is a partial max over mdl; reshard it to replicated");
  REQUIRE(of({"f32[\"batch=4\"]", "i32[\"\"]"}, [](const Tensors& in) {
            return dropout(in[0], 1.0, in[1]);
          }) == "dropout: rate is 1, expected a number from 0 (keep all) to below 1");
  Trial trial(kMesh, {"f32[\"batch=4\"]", "i32[\"\"]"});
  REQUIRE(dropout(trial.inputs()[0], 0.0, trial.inputs()[1]).id() == trial.inputs()[0].id());
}

TEST_CASE("Each use of a path draws different numbers; layers of a stack share a path") {
  Trial trial(kMesh, {"i32[\"\"]"});
  const SeedScope seed(7);
  const auto stream_of = [&](const std::string& path) {
    const PathScope scope(path);
    random_uniform({{"batch", 4, {}}}, trial.inputs()[0]);
    const Attributes& attributes = trial.graph().nodes().back().attributes;
    REQUIRE(attributes.get(key::kSeed) == 7);
    return std::pair(attributes.get(key::kStream), attributes.get(key::kLayer));
  };
  using Stream = std::pair<std::string, int64_t>;
  REQUIRE(stream_of("drop") == Stream{"drop", -1});
  REQUIRE(stream_of("drop") == Stream{"drop#1", -1});
  REQUIRE(stream_of("drop") == Stream{"drop#2", -1});
  REQUIRE(stream_of("lm.x[3].drop") == Stream{"lm.x[].drop", 3});
  REQUIRE(stream_of("lm.x[4].drop") == Stream{"lm.x[].drop", 4});
  REQUIRE(stream_of("lm.x[4].drop") == Stream{"lm.x[].drop#1", 4});
  REQUIRE(stream_of("lm.x[4].experts[2].drop") == Stream{"lm.x[].experts[2].drop", 4});
}

TEST_CASE("Adam's operands must have the same layout") {
  const std::string slot = "f32[\"embed/data=8\"]", scalar = "f32[\"\"]";
  const Application update = [](const Tensors& in) {
    return adam_update({in[0], in[1], in[1]}, in[2], in[3], in[3], in[3], in[4], {}).parameter;
  };
  REQUIRE(of({slot, slot, slot, scalar, "bool[\"\"]"}, update) == "f32[\"embed/data\"]");
  REQUIRE(of({slot, slot, "f32[\"embed=8\"]", scalar, "bool[\"\"]"}, update) ==
          "adam_update: z is f32[\"embed=8\"], expected f32[\"embed/data=8\"]; reshard z to "
          "\"embed/data\"");
  REQUIRE(of({slot, slot, "f32[\"embed/data=8\" + sum(mdl)]", scalar, "bool[\"\"]"}, update) ==
          "adam_update is not linear; z is partial over mdl; place(z)");
}

}  // namespace

}  // namespace tessera
