// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/verify.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Mesh& mesh() {
  static const Mesh mesh({{"data", 2}, {"mdl", 4}});
  return mesh;
}

// The pass applied to what a function makes of inputs of these types; the result is legal and has
// the types that the outputs had, without pending sums.
Graph whole(const std::vector<std::string>& types, const Application& apply) {
  Trial trial(mesh(), types);
  const Tensor y = apply(trial.inputs());
  trial.graph().add_output("y", y.id());
  Graph graph = with_whole_sums(trial.graph(), mesh());
  verify(graph, mesh());
  Type expected = y.type();
  expected.partial = {};
  REQUIRE(graph.type(graph.outputs()[0].value) == expected);
  return graph;
}

// The types of the first results of nodes of this op, in order.
std::vector<std::string> types_of(const Graph& graph, std::string_view op) {
  std::vector<std::string> types;
  for (const Node& node : graph.nodes()) {
    for (const auto& body : node.bodies)
      for (std::string& each : types_of(*body, op)) types.push_back(std::move(each));
    if (node.op->name == op) types.push_back(graph.type(node.outputs[0]).text());
  }
  return types;
}

using Texts = std::vector<std::string>;
using T = const std::vector<Tensor>&;

TEST_CASE("a contraction over a split axis splits an axis of its result instead") {
  const auto product = [](T t) { return einsum(t[0], t[1], over("e")); };
  // The axis that needs the fewest bytes whole: the larger operand stays divided.
  const Graph rows = whole({"f32[\"b/data=64 e/mdl=16\"]", "f32[\"e/mdl=16 m=8\"]"}, product);
  REQUIRE(types_of(rows, "einsum") == Texts{"f32[\"b/data/mdl m\"]"});
  const Graph columns = whole({"f32[\"b/data=8 e/mdl=16\"]", "f32[\"e/mdl=16 m=64\"]"}, product);
  REQUIRE(types_of(columns, "einsum") == Texts{"f32[\"b/data m/mdl\"]"});
  // The axis that the reader splits.
  const Graph next = whole({"f32[\"b/data=64 e/mdl=16\"]", "f32[\"e/mdl=16 m=8\"]"},
                           [&](T t) { return reshard(product(t), "b/data m/mdl"); });
  REQUIRE(types_of(next, "einsum") == Texts{"f32[\"b/data m/mdl\"]"});
  // None that can be divided.
  const Graph repeated = whole({"f32[\"b/data=2 e/mdl=16\"]", "f32[\"e/mdl=16 m=3\"]"}, product);
  REQUIRE(types_of(repeated, "einsum") == Texts{"f32[\"b/data m\"]"});
}

TEST_CASE("linear ops, loops and masks of what was a pending sum have the whole value") {
  const Graph graph = whole({"f32[\"b/mdl=8 e=16\"]", "f32[\"e=16\"]"}, [](T t) {
    const Tensor sum = reduce_sum(t[0], "b");
    const Tensor other = reshard(t[1], "e + sum(mdl)");
    const RepeatResult twice =
        repeat("times", 2, {sum + other}, {},
               [](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
                 return {{carries[0] * 0.5}, {}};
               });
    return reshard(twice.carries[0], "e");
  });
  REQUIRE(types_of(graph, "reduce_sum") == Texts{"f32[\"e/mdl\"]"});
  REQUIRE(types_of(graph, "add") == Texts{"f32[\"e\"]"});
  REQUIRE(types_of(graph, "mul").size() + types_of(graph, "scale").size() == 1);
}

TEST_CASE("a lookup in a split table stays a sum of one term and zeros") {
  const Graph graph = whole({"f32[\"vocab/mdl=32 e=16\"]", "i32[\"b/data=8\"]"},
                            [](T t) { return reshard(gather(t[0], t[1], "vocab"), "b/data e"); });
  REQUIRE(types_of(graph, "gather") == Texts{"f32[\"b/data e\" + sum(mdl)]"});
}

TEST_CASE("maxima stay divided") {
  const Graph graph =
      whole({"f32[\"b/data=8 e/mdl=16\"]"}, [](T t) { return reduced(reduce_max(t[0], "e")); });
  REQUIRE(types_of(graph, "reduce_max") == Texts{"f32[\"b/data\" + max(mdl)]"});
}

TEST_CASE("attention of split sequences is divided by heads") {
  const std::string keys = "f32[\"batch/data=2 key_seq/mdl=16 kv_heads=4 head_dim=2\"]";
  const auto attend = [](T t) { return attention(t[0], t[1], t[2], {.scale = 1.0}); };
  const Graph graph =
      whole({"f32[\"batch/data=2 seq/mdl=16 heads=4 head_dim=2\"]", keys, keys}, attend);
  REQUIRE(types_of(graph, "attention") == Texts{"f32[\"batch/data seq heads/mdl head_dim\"]"});
  const std::string shared = "f32[\"batch/data=2 key_seq/mdl=16 kv_heads=1 head_dim=2\"]";
  const Graph repeated =
      whole({"f32[\"batch/data=2 seq/mdl=16 heads=4 head_dim=2\"]", shared, shared}, attend);
  REQUIRE(types_of(repeated, "attention") == Texts{"f32[\"batch/data seq heads head_dim\"]"});
}

TEST_CASE("the splits of an axis move to the first other axis that they divide") {
  const auto moved = [](const std::string& type, std::string_view axis) {
    return with_whole_axis(parse_type(type), axis, mesh()).text();
  };
  REQUIRE(moved("f32[\"b/data=8 s=3 v/mdl=12\"]", "v") == "f32[\"b/data/mdl s v\"]");
  REQUIRE(moved("f32[\"b/data=4 s=8 v/mdl=12\"]", "v") == "f32[\"b/data s/mdl v\"]");
  REQUIRE(moved("f32[\"layers=8 v/mdl=12\"]", "v") == "f32[\"layers v\"]");
}

}  // namespace
}  // namespace tessera
