// SPDX-License-Identifier: Apache-2.0
// Mistakes that would give wrong numbers only on several devices must be errors at trace time.
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/op.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

const Mesh kMesh = Mesh::standard({1, 2, 4});

TEST_CASE("A bias added to a partial sum would count once per device") {
  REQUIRE(outcome(kMesh, {"f32[\"b=8 m/mdl=16\"]", "f32[\"m/mdl=16 e=8\"]", "f32[\"e=8\"]"},
                  [](T t) { return einsum(t[0], t[1], over("m")).named("y") + t[2]; }) ==
          "add: y is a partial sum over mdl, z is not; z would count once for each device along "
          "mdl; place(y) before "
          "adding");
}

TEST_CASE("The gradient of a mask is the whole cotangent, not the device's part") {
  Trial trial(kMesh, {"f32[\"b=8\"]"});
  const Tensor x = trial.inputs()[0];
  const Tensor masked = reshard(x, "b + sum(mdl)");
  const Node node = trial.graph().nodes().front();
  const Tensor dy = input("dy", InputKind::kBatch, parse_type("f32[\"b=8\"]"));
  const std::vector<Tensor> in = {x}, out = {masked}, cotangents = {dy};
  REQUIRE(node.op->vjp({node, in, out, cotangents})[0].id() == dy.id());
}

TEST_CASE("A gradient has the axis order of its parameter, also for equal sizes") {
  Trial trial(kMesh, {"f32[\"x=8 z=8\"]", "f32[\"z=8 x=8\"]"});
  const Tensor product = einsum("x z, z x -> z x", trial.inputs()[0], trial.inputs()[1]);
  const std::vector<Tensor> gradient = gradients(reduce_sum(product), trial.inputs());
  REQUIRE(gradient[0].type().text() == "f32[\"x z\"]");
  REQUIRE(gradient[1].type().text() == "f32[\"z x\"]");
}

TEST_CASE("The gradient of an unused parameter is zeros in the parameter's layout") {
  Trial trial(kMesh, {"f32[\"b=8\"]", "f32[\"x/data=8 z/mdl=8\"]"});
  const std::vector<Tensor> gradient = gradients(reduce_sum(trial.inputs()[0]), trial.inputs());
  REQUIRE(gradient[1].type().text() == "f32[\"x/data z/mdl\"]");
  const Node& zeros = trial.graph().node(trial.graph().value(gradient[1].id()).producer);
  REQUIRE(zeros.op->name == "constant");
  REQUIRE(zeros.attributes.get(key::kValue) == 0.0);
}

TEST_CASE("A partial quotient can be computed but not fetched") {
  Trial trial(kMesh, {"f32[\"b/data=8\"]", "f32[\"\"]"});
  const Tensor loss = reduce_sum(trial.inputs()[0]) / trial.inputs()[1];
  REQUIRE(loss.type().text() == "f32[\"\" + sum(data)]");
  REQUIRE(error_of([&] { output("loss", loss); }) ==
          "loss is fetched but partial over data; place(loss)");
}

TEST_CASE("Sums of squares of split and replicated gradients cannot be added without a mask") {
  Trial trial(kMesh, {"f32[\"x/data=8\"]", "f32[\"x=8\"]"});
  const Tensor split = reduce_sum(square(trial.inputs()[0])).named("split");
  const Tensor whole = reduce_sum(square(trial.inputs()[1])).named("whole");
  REQUIRE_THAT(error_of([&] { split + whole; }),
               Catch::Contains("whole would count once for each device along data"));
  REQUIRE((split + reshard(whole, "+ sum(data)")).type().text() == "f32[\"\" + sum(data)]");
}

TEST_CASE("A partial gradient cannot be squared for a norm") {
  REQUIRE(outcome(kMesh, {"f32[\"x=8\" + sum(data)]"}, [](T t) { return square(t[0]); }) ==
          "square is not linear; x is partial over data; place(x)");
}

TEST_CASE("The mean square over a split axis is partial until it is placed") {
  const std::vector<std::string> x = {"f32[\"b=8 e/mdl=16\"]"};
  REQUIRE(outcome(kMesh, x, [](T t) { return rsqrt(reduce_mean(square(t[0]), "e").named("m")); }) ==
          "rsqrt is not linear; m is partial over mdl; place(m)");
  REQUIRE(outcome(kMesh, x, [](T t) {
            return t[0] * rsqrt(reshard(reduce_mean(square(t[0]), "e"), "b"));
          }) == "f32[\"b e/mdl\"]");
}

TEST_CASE("A maximum over a split axis is partial until it is reduced") {
  const std::vector<std::string> x = {"f32[\"b=8 v/mdl=16\"]"};
  REQUIRE(outcome(kMesh, x, [](T t) { return t[0] - reduce_max(t[0], "v").named("m"); }) ==
          "sub: m is a partial max over mdl; reshard it to replicated");
  REQUIRE(outcome(kMesh, x, [](T t) { return t[0] - reshard(reduce_max(t[0], "v"), "b"); }) ==
          "f32[\"b v/mdl\"]");
}

TEST_CASE("A maximum has no gradient; stop_gradient its operand") {
  Trial trial(kMesh, {"f32[\"b=8\"]"});
  const Tensor x = trial.inputs()[0];
  REQUIRE_THAT(error_of([&] { gradients(reduce_max(x, "b"), {x}); }),
               Catch::Contains("reduce_max has no gradient; stop_gradient its operand"));
  REQUIRE(gradients(reduce_sum(x) - reduce_max(stop_gradient(x), "b"), {x})[0].valid());
}

}  // namespace
}  // namespace tessera
