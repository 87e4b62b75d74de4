// SPDX-License-Identifier: Apache-2.0
// Attention whose query heads are split further than there are key heads.
#include <algorithm>
#include <cmath>

#include "core/compile/autodiff/autodiff.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// Attention, and its gradients by q, k and v, of sequences of two documents.
Graph traced(const Mesh& mesh, const std::string& batch, const std::string& heads,
             const std::string& kv_heads) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const auto parameter = [](const std::string& name, const std::string& axes) {
    return input(name, InputKind::kParameter, parse_type("f32[\"" + axes + "\"]"));
  };
  const Tensor q = parameter("q", batch + " seq=5 " + heads + " head_dim=3");
  const Tensor k = parameter("k", batch + " key_seq=5 " + kv_heads + " head_dim=3");
  const Tensor v = parameter("v", batch + " key_seq=5 " + kv_heads + " head_dim=3");
  AttentionOptions options{.scale = 0.6, .logit_cap = 4.0};
  options.segment_ids =
      input("segments", InputKind::kBatch, parse_type("i32[\"" + batch + " seq=5\"]"));
  const Tensor out = attention(q, k, v, options);
  output("out", out);
  const std::vector<Tensor> all = gradients(place(reduce_sum(square(out) + out)), {q, k, v});
  output("dq", all[0]);
  output("dk", all[1]);
  output("dv", all[2]);
  return graph;
}

ReferenceInputs inputs_of(const Graph& graph) {
  ReferenceInputs inputs;
  for (const GraphInput& each : graph.inputs()) {
    std::vector<double>& values = inputs[each.name];
    for (int64_t i = 0; i < graph.type(each.value).elements(); ++i)
      values.push_back(each.kind == InputKind::kBatch
                           ? static_cast<double>(i % 5 > 2)
                           : std::sin(static_cast<double>(7 * i + each.value.value() * 5)));
  }
  return inputs;
}

TEST_CASE("Query heads split further than key heads attend to the same key heads as unsplit") {
  const std::string kv_heads = GENERATE("kv_heads=1", "kv_heads=2", "kv_heads=4", "kv_heads/mdl=4");
  const std::string heads = GENERATE("heads/mdl=8", "heads/mdl/replica=8");
  if (kv_heads == "kv_heads=4" && heads == "heads/mdl=8")
    return;  // The keys must be split, because they can be.
  if (kv_heads == "kv_heads/mdl=4" && heads != "heads/mdl=8") return;
  CAPTURE(kv_heads, heads);
  const Mesh mesh = Mesh::standard({2, 2, 4});
  Type whole_keys = parse_layout(kv_heads);
  whole_keys.axes[0].split.clear();
  const std::string keys = "kv_heads=" + std::to_string(whole_keys.axes[0].size);
  const Graph whole = traced({}, "batch=2", "heads=8", keys);
  const Graph split = traced(mesh, "batch/data=2", heads, kv_heads);
  const ReferenceInputs inputs = inputs_of(whole);
  const auto got = SimulatedMesh(split, mesh).run(inputs);
  for (const auto& [name, array] : evaluate(whole, inputs)) {
    CAPTURE(name);
    for (size_t i = 0; i < array.values.size(); ++i)
      REQUIRE(std::abs(got.at(name)[i] - array.values[i]) < 1e-12);
  }
}

TEST_CASE("Key heads that the devices cannot share are refused with legal sizes") {
  const Mesh mesh = Mesh::standard({1, 1, 4});
  const Application attend = [](const std::vector<Tensor>& in) {
    return attention(in[0], in[1], in[1], {});
  };
  const std::string q = "f32[\"batch=2 seq=5 heads/mdl=12 head_dim=3\"]";
  const auto of = [&](const std::string& kv_heads) {
    return outcome(mesh, {q, "f32[\"batch=2 key_seq=5 " + kv_heads + " head_dim=3\"]"}, attend);
  };
  REQUIRE(of("kv_heads=2") == "f32[\"batch seq heads/mdl head_dim\"]");
  REQUIRE(of("kv_heads=6") ==
          "attention: heads are split by mdl=4, which kv_heads=6 can neither be split by nor "
          "divide; the nearest legal kv_heads is 2, or leave heads unsplit");
  REQUIRE(of("kv_heads=12") ==
          "attention: x has heads/mdl, y has kv_heads; split both the same way with "
          "rules.activations");
}

}  // namespace
}  // namespace tessera
