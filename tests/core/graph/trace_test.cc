// SPDX-License-Identifier: Apache-2.0
// Tracing: paths, phases, remat regions, captures of loop bodies.
#include "core/graph/trace.h"

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Mesh kMesh = Mesh::standard({1, 1, 1});

const Node& producer(const Tensor& tensor) {
  return tensor.graph()->node(tensor.graph()->value(tensor.id()).producer);
}

TEST_CASE("Nodes have a source line, layer path, phase and remat region") {
  Trial trial(kMesh, {"f32[\"b=4\"]"});
  const Tensor x = trial.inputs()[0];
  const Tensor outside = tanh({x, SourceSite{"lm.cc", 12}});
  const PathScope model("lm");
  Tensor inner, nested, later, backward;
  {
    const PathScope layer("x_layers[1]");
    const RematScope region;
    inner = tanh(x);
    {
      const RematScope same;
      nested = tanh(inner);
    }
    const PhaseScope phase(Phase::kBackward);
    backward = tanh(x);
  }
  {
    const RematScope region;
    later = tanh(x);
  }
  REQUIRE(producer(outside).path.empty());
  REQUIRE(producer(outside).remat_block == kNone);
  REQUIRE(producer(outside).site.text() == "lm.cc:12");
  REQUIRE(producer(inner).path == "lm.x_layers[1]");
  REQUIRE(producer(inner).remat_block == RematBlockId(0));
  REQUIRE(producer(nested).remat_block == RematBlockId(0));
  REQUIRE(producer(later).remat_block == RematBlockId(1));
  REQUIRE(producer(later).path == "lm");
  REQUIRE(producer(backward).phase == Phase::kBackward);
  REQUIRE(producer(backward).remat_block == kNone);
  REQUIRE(traced_path() == "lm");
}

TEST_CASE("Nodes traced in a ServeScope take its source line and layer path") {
  Trial trial(kMesh, {"f32[\"b=4\"]"});
  Tensor y;
  {
    const PathScope layer("ffn");
    y = tanh(trial.inputs()[0]);
  }
  const ServeScope serve(producer(y));
  const Tensor gradient = neg(y);
  REQUIRE(producer(gradient).path == "ffn");
  REQUIRE(producer(gradient).site.text() == producer(y).site.text());
  REQUIRE_THAT(error_of([&] { reduce_sum(y, "q"); }),
               Catch::StartsWith(producer(y).site.text()) && Catch::EndsWith("[in ffn]"));
}

TEST_CASE("An error in a list of axes gives the line of the op") {
  Trial trial(kMesh, {"f32[\"b=4 c=4\"]"});
  const Operand x = {trial.inputs()[0], SourceSite{"up.cc", 7}};
  REQUIRE(error_of([&] { reduce_sum(x, "b b"); }) ==
          "up.cc:7: layout \"b b\": axis 'b' is named twice");
  REQUIRE(error_of([&] { transpose(x, "c/mdl b"); }) ==
          "up.cc:7: axes \"c/mdl b\": plain names expected, got 'c/mdl'");
}

TEST_CASE("Values are described by name, or else by op and layer") {
  Trial trial(kMesh, {"f32[\"b=4\"]"});
  const PathScope layer("ffn");
  const Tensor y = tanh(trial.inputs()[0]);
  Graph& graph = trial.graph();
  REQUIRE(graph.describe(trial.inputs()[0].id()) == "x");
  REQUIRE(graph.describe(y.id()) == "tanh of ffn");
  REQUIRE(graph.describe(y.named("hidden").id()) == "hidden");
}

TEST_CASE("Captures of a body become constants and slices of the loop, once each and in order") {
  Trial trial(kMesh, {"f32[\"b=4\"]", "f32[\"b=4\"]", "f32[\"layers=3 b=4\"]", "f32[\"b=4\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  Graph body;
  BodyScope scope(body, "layers", 3);
  const Tensor carry = input("carry 0", InputKind::kLoop, in[0].type());
  Tensor y = carry + in[3];
  y = y + scope.slice(in[2]);
  y = y + in[1] + in[3];
  y = y + scope.slice(in[2]);
  scope.finish();

  REQUIRE(scope.constants().size() == 2);
  REQUIRE(scope.constants()[0].outer.id() == in[3].id());
  REQUIRE(scope.constants()[1].outer.id() == in[1].id());
  REQUIRE(scope.slices().size() == 1);
  REQUIRE(body.type(scope.slices()[0].inner).text_sized() == "f32[\"b=4\"]");
  std::vector<std::string> names;
  for (const GraphInput& each : body.inputs()) names.push_back(each.name);
  REQUIRE(names == std::vector<std::string>{"index", "carry 0", "z", "u", "y"});
  verify(body, kMesh, "a body");
}

TEST_CASE("A nested body captures through both bodies") {
  Trial trial(kMesh, {"f32[\"b=4\"]"});
  const Tensor x = trial.inputs()[0];
  Graph outer_body, inner_body;
  BodyScope outer(outer_body, "layers", 2);
  {
    BodyScope inner(inner_body, "steps", 2);
    const Tensor y = tanh(x);
    REQUIRE(y.graph() == &inner_body);
    REQUIRE(inner.constants().size() == 1);
    REQUIRE(inner.constants()[0].outer.graph() == &outer_body);
    REQUIRE(innermost_body() == &inner);
  }
  REQUIRE(outer.constants().size() == 1);
  REQUIRE(outer.constants()[0].outer.id() == x.id());
  REQUIRE(innermost_body() == &outer);
}

TEST_CASE("Remat regions of a body are independent of those around the loop") {
  Trial trial(kMesh, {"f32[\"b=4\"]"});
  const RematScope around;
  Graph body;
  const BodyScope scope(body, "layers", 2);
  REQUIRE(producer(tanh(trial.inputs()[0])).remat_block == kNone);
  const RematScope region;
  REQUIRE(producer(tanh(trial.inputs()[0])).remat_block == RematBlockId(0));
}

TEST_CASE("A slice requires the leading axis to be that of the loop, and unsplit") {
  const Mesh mesh({{"stage", 3}});
  Trial trial(mesh, {"f32[\"b=4\"]", "f32[\"layers/stage=3 b=4\"]", "f32[\"layers=4 b=4\"]"});
  Graph body;
  BodyScope scope(body, "layers", 3);
  REQUIRE(error_of([&] { scope.slice(trial.inputs()[0]); }) ==
          "repeat: x is f32[\"b=4\"], expected a leading axis layers=3");
  REQUIRE(error_of([&] { scope.slice(trial.inputs()[1]); }) ==
          "repeat: layers/stage of y is split; the axis of a loop must not be split");
  REQUIRE(error_of([&] { scope.slice(trial.inputs()[2]); }) ==
          "repeat: z is f32[\"layers=4 b=4\"], expected a leading axis layers=3");
}

TEST_CASE("Names of inputs, outputs and updates are unique") {
  Trial trial(kMesh, {"f32[\"b=4\"]"});
  const Tensor x = trial.inputs()[0];
  REQUIRE(error_of([&] { input("x", InputKind::kBatch, x.type()); }) ==
          "the graph already has an input 'x'");
  output("y", x);
  REQUIRE(error_of([&] { output("y", x); }) == "the graph already has an output 'y'");
  REQUIRE(error_of([&] { input("w", InputKind::kBatch, parse_type("f32[\"b/dat=4\"]")); }) ==
          "w: f32[\"b/dat\"] uses 'dat', which the mesh (replica=1 data=1 mdl=1) lacks; did you "
          "mean 'data'?");
}

TEST_CASE("An unknown op name suggests the nearest") {
  REQUIRE(find_op("einsum").name == "einsum");
  REQUIRE(error_of([] { find_op("einsun"); }) == "no op 'einsun'; did you mean 'einsum'?");
}

}  // namespace
}  // namespace tessera
