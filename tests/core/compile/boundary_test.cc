// SPDX-License-Identifier: Apache-2.0
// Tests where cotangents are reduced over the mesh: the reshards of the backward pass for common
// layouts, written by hand. The size of the mesh does not matter, so each case also runs on one
// device.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/remat/remat.h"
#include "core/compile/simplify.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

// "f32["embed" + sum(data)] -> f32["embed/data"]" of each reshard of the backward pass, loops'
// bodies included, sorted.
void collect_reshards(const Graph& graph, Lines& lines) {
  for (const Node& node : graph.nodes()) {
    for (const auto& body : node.bodies) collect_reshards(*body, lines);
    if (node.phase != Phase::kBackward || node.op->name != "reshard") continue;
    lines.push_back(graph.type(node.inputs[0]).text() + " -> " +
                    graph.type(node.outputs[0]).text());
  }
}

Lines backward_reshards(const std::map<std::string, std::string>& parameters,
                        const LossFunction& loss, const Mesh& mesh) {
  const Graph graph = dce(trace_gradients(parameters, loss, mesh));
  verify(graph, mesh);
  REQUIRE(gradient_error(graph, mesh) < 1e-8);
  for (const GraphOutput& output : graph.outputs()) {
    const std::string prefix = "gradient of ";
    if (!output.name.starts_with(prefix)) continue;
    const GraphInput* parameter = graph.find_input(output.name.substr(prefix.size()));
    REQUIRE(graph.type(output.value) == graph.type(parameter->value));
  }
  Lines lines;
  collect_reshards(graph, lines);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// On eight devices and on one, which must agree.
Lines backward_reshards(const std::map<std::string, std::string>& parameters,
                        const LossFunction& loss) {
  const Lines eight = backward_reshards(parameters, loss, Mesh::standard({2, 2, 2}));
  REQUIRE(backward_reshards(parameters, loss, Mesh::standard({1, 1, 1})) == eight);
  return eight;
}

Tensor total(const Tensor& x) {
  const Tensor sum = reduce_sum(x);
  return sum.type().partial ? reshard(sum, "") : sum;
}

TEST_CASE("The gradient of a gathered weight is reduce-scattered") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor w = reshard(p.at("w"), "embed mlp");
    return total(tanh(einsum(p.at("x"), w, over("embed"))));
  };
  REQUIRE(backward_reshards(
              {{"x", "f32[\"batch/data=4 embed=2\"]"}, {"w", "f32[\"embed/data=2 mlp=4\"]"}},
              loss) == Lines{R"(f32["embed mlp" + sum(data)] -> f32["embed/data mlp"])"});
}

TEST_CASE("A cast between parameter and gather keeps the gradient partial") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor w = reshard(scale(p.at("w"), 2.0), "embed mlp");
    const Tensor up = rename(w, "mlp", "out");
    return total(tanh(einsum(p.at("x"), up, over("embed"))));
  };
  REQUIRE(backward_reshards(
              {{"x", "f32[\"batch/data=4 embed=2\"]"}, {"w", "f32[\"embed/data=2 mlp=4\"]"}},
              loss) == Lines{R"(f32["embed mlp" + sum(data)] -> f32["embed/data mlp"])"});
}

TEST_CASE("Query, key and value projections share one reduction of their input's cotangent") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor h = tanh(p.at("x"));
    Tensor sum;
    for (const char* name : {"q", "k", "v"}) {
      const Tensor y = square(einsum(h, p.at(name), over("embed")));
      sum = sum ? sum + y : y;
    }
    return total(sum);
  };
  const std::string weight = "f32[\"embed=2 heads/mdl=4\"]";
  REQUIRE(backward_reshards(
              {{"x", "f32[\"batch=2 embed=2\"]"}, {"q", weight}, {"k", weight}, {"v", weight}},
              loss) == Lines{R"(f32["batch embed" + sum(mdl)] -> f32["batch embed"])"});
}

TEST_CASE("The cotangent of a residual is added after that of the branch is reduced") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor x = tanh(p.at("x"));
    const Tensor h = gelu(einsum(x, p.at("up"), over("embed")));
    const Tensor y = reshard(einsum(h, p.at("down"), over("mlp")), "batch embed");
    return total(square(x + y));
  };
  REQUIRE(backward_reshards({{"x", "f32[\"batch=2 embed=2\"]"},
                             {"up", "f32[\"embed=2 mlp/mdl=4\"]"},
                             {"down", "f32[\"mlp/mdl=4 embed=2\"]"}},
                            loss) ==
          Lines{R"(f32["batch embed" + sum(mdl)] -> f32["batch embed"])"});
}

TEST_CASE(
    "With sequence parallelism the backward pass gathers where the forward pass scatters, and "
    "conversely") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor x = tanh(p.at("x"));
    const Tensor whole = reshard(x, "batch seq embed");
    const Tensor h = gelu(einsum(whole, p.at("up"), over("embed")));
    const Tensor y = reshard(einsum(h, p.at("down"), over("mlp")), "batch seq/mdl embed");
    return total(square(x + y));
  };
  REQUIRE(backward_reshards({{"x", "f32[\"batch=2 seq/mdl=2 embed=2\"]"},
                             {"up", "f32[\"embed=2 mlp/mdl=4\"]"},
                             {"down", "f32[\"mlp/mdl=4 embed=2\"]"}},
                            loss) ==
          Lines{R"(f32["batch seq embed" + sum(mdl)] -> f32["batch seq/mdl embed"])",
                R"(f32["batch seq/mdl embed"] -> f32["batch seq embed"])"});
}

TEST_CASE("The gradient of a replicated parameter used twice is reduced once") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor h = tanh(p.at("x") * p.at("s"));
    return total(square(h * p.at("s")));
  };
  REQUIRE(backward_reshards({{"x", "f32[\"batch/data=4 embed=2\"]"}, {"s", "f32[\"embed=2\"]"}},
                            loss) == Lines{R"(f32["embed" + sum(data)] -> f32["embed"])"});
}

TEST_CASE("A tied table is gathered once and its gradient scattered once") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor table = reshard(p.at("table"), "vocab embed");
    const Tensor ids = iota(Axis{"batch", 4, {"data"}});
    const Tensor h = tanh(gather(table, ids, "vocab"));
    return total(square(einsum(h, table, over("embed"))));
  };
  REQUIRE(backward_reshards({{"table", "f32[\"vocab=6 embed/data=2\"]"}}, loss) ==
          Lines{R"(f32["vocab embed" + sum(data)] -> f32["vocab embed/data"])"});
}

TEST_CASE("The gradient of a tied table that each reader places itself is scattered once") {
  const auto loss = [](const NamedTensors& p) {
    const auto table = [&] { return reshard(cast(p.at("table"), DType::kBF16), "vocab embed"); };
    const Tensor ids = iota(Axis{"batch", 4, {"data"}});
    const Tensor h = tanh(gather(table(), ids, "vocab"));
    return total(square(cast(einsum(h, table(), over("embed")), DType::kF32)));
  };
  REQUIRE(backward_reshards({{"table", "f32[\"vocab=6 embed/data=2\"]"}}, loss) ==
          Lines{R"(bf16["vocab embed" + sum(data)] -> bf16["vocab embed/data"])"});
}

TEST_CASE("Gradients of matrices stored in one parameter are reduced together") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor both = reshard(p.at("both"), "pair embed mlp");
    const auto nth = [&](int64_t i) { return reduce_sum(slice(both, "pair", i, i + 1), "pair"); };
    const Tensor h = einsum(p.at("x"), nth(0), over("embed"));
    return total(square(h * einsum(p.at("x"), nth(1), over("embed"))));
  };
  REQUIRE(
      backward_reshards(
          {{"x", "f32[\"batch/data=4 embed=2\"]"}, {"both", "f32[\"pair=2 embed=2 mlp/data=4\"]"}},
          loss) == Lines{R"(f32["pair embed mlp" + sum(data)] -> f32["pair embed mlp/data"])"});
}

TEST_CASE("At a boundary a replicated cotangent is masked and added to a partial one") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor w = reshard(p.at("w"), "embed");
    return total(tanh(p.at("x") * w)) + total(square(w));
  };
  REQUIRE(backward_reshards(
              {{"x", "f32[\"batch/data=4 embed=2\"]"}, {"w", "f32[\"embed/data=2\"]"}}, loss) ==
          Lines{R"(f32["embed" + sum(data)] -> f32["embed/data"])",
                R"(f32["embed"] -> f32["embed" + sum(data)])"});
}

TEST_CASE("Partial sums over different mesh axes are added before they are reduced") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor h = tanh(p.at("h"));
    const Tensor y = einsum(h, p.at("w"), over("embed"));  // Pending over mdl in the backward pass.
    return total(square(y)) + total(tanh(p.at("x") * h));  // Pending over data.
  };
  REQUIRE(backward_reshards({{"h", "f32[\"embed=2\"]"},
                             {"w", "f32[\"embed=2 mlp/mdl=4\"]"},
                             {"x", "f32[\"batch/data=4 embed=2\"]"}},
                            loss) ==
          Lines{R"(f32["embed" + sum(data)] -> f32["embed" + sum(data, mdl)])",
                R"(f32["embed" + sum(data, mdl)] -> f32["embed"])",
                R"(f32["embed" + sum(mdl)] -> f32["embed" + sum(data, mdl)])"});
}

// Tensor-parallel layers in a loop: the cotangent of the carry is replicated in every iteration,
// that of the stacked weights is sharded, and that of the shared bias is reduced once after the
// loop.
Tensor looped(const NamedTensors& p) {
  const Tensor bias = reshard(p.at("bias"), "embed");
  const RepeatResult result = repeat(
      "layers", 3, {tanh(p.at("x"))}, {}, [&](Tensor, std::vector<Tensor> x, std::vector<Tensor>) {
        const Tensor up = reshard(loop_slice(p.at("up")), "embed mlp/mdl");
        const Tensor h = gelu(einsum(x[0], up, over("embed")));
        const Tensor y = einsum(h, loop_slice(p.at("down")), over("mlp"));
        return RepeatBody{{x[0] + reshard(y, "batch/data embed") + bias}, {}};
      });
  return total(square(result.carries[0]));
}

TEST_CASE(
    "In a loop the cotangent of a carry has a fixed type, and those of constants are reduced "
    "once") {
  REQUIRE(backward_reshards({{"x", "f32[\"batch/data=2 embed=2\"]"},
                             {"bias", "f32[\"embed/data=2\"]"},
                             {"up", "f32[\"layers=3 embed/data=2 mlp/mdl=4\"]"},
                             {"down", "f32[\"layers=3 mlp/mdl=4 embed=2\"]"}},
                            looped) ==
          Lines{R"(f32["batch/data embed" + sum(mdl)] -> f32["batch/data embed"])",
                R"(f32["embed mlp/mdl" + sum(data)] -> f32["embed/data mlp/mdl"])",
                R"(f32["embed" + sum(data)] -> f32["embed/data"])",
                R"(f32["embed"] -> f32["embed" + sum(data)])",  // Zeros to start the sum.
                R"(f32["layers mlp/mdl embed" + sum(data)] -> f32["layers mlp/mdl embed"])"});
}

TEST_CASE("Rematerialised layers gather their weights again and have the same gradients") {
  const Mesh mesh = Mesh::standard({2, 2, 2});
  const auto parameters =
      std::map<std::string, std::string>{{"x", "f32[\"batch/data=2 embed=2\"]"},
                                         {"bias", "f32[\"embed/data=2\"]"},
                                         {"up", "f32[\"layers=3 embed/data=2 mlp/mdl=4\"]"},
                                         {"down", "f32[\"layers=3 mlp/mdl=4 embed=2\"]"}};
  const Graph graph =
      rematerialize(trace_gradients(parameters, looped, mesh), parse_remat_policy("save_nothing"));
  verify(graph, mesh);
  REQUIRE(gradient_error(graph, mesh) < 1e-8);
  Lines lines;
  collect_reshards(graph, lines);
  const std::string gathered = R"(f32["embed/data mlp/mdl"] -> f32["embed mlp/mdl"])";
  REQUIRE(std::count(lines.begin(), lines.end(), gathered) == 1);
}

}  // namespace
}  // namespace tessera
