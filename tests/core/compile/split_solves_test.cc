// SPDX-License-Identifier: Apache-2.0
// Triangular solves, associative scans, logsumexp and argmax: against plain implementations, and on
// a mesh against one device, with their gradients.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/ops/associative_scan.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/ops/triangular_solve.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
using Tensors = std::vector<Tensor>;

std::vector<Tensor> recurrence(const Tensors& x, const Tensors& y) {
  return {x[0] * y[0], y[0] * x[1] + y[1]};
}

// The result for operands of these types, and, if it is floating, the gradients of the sum of its
// squares.
Graph traced(const Mesh& mesh, const std::vector<std::string>& types, const Application& apply) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Tensors in;
  for (const std::string& type : types)
    in.push_back(input(fmt::format("x{}", in.size()), InputKind::kParameter, parse_type(type)));
  const Tensor result = apply(in);
  output("result", result);
  if (!is_floating(result.dtype())) return graph;
  const Tensors slopes = gradients(place(reduce_sum(square(result) + result)), in);
  for (size_t i = 0; i < slopes.size(); ++i) output(fmt::format("slope {}", i), slopes[i]);
  return graph;
}

Values value_of(const std::vector<std::string>& types, const ReferenceInputs& inputs,
                const Application& apply) {
  return evaluate(traced({}, types, apply), inputs).at("result").values;
}

// REQUIREs equal numbers on a mesh whose axes split the operands as in `split`.
void require_same_when_split(const std::vector<std::string>& whole,
                             const std::vector<std::string>& split, const Application& apply) {
  const Mesh mesh = Mesh::standard({1, 2, 2});
  const Graph one = traced({}, whole, apply), many = traced(mesh, split, apply);
  const ReferenceInputs inputs = sample_inputs(one);
  const auto got = SimulatedMesh(many, mesh).run(inputs);
  for (const auto& [name, array] : evaluate(one, inputs)) {
    CAPTURE(name, split);
    for (size_t i = 0; i < array.values.size(); ++i)
      REQUIRE(got.at(name)[i] == Approx(array.values[i]).margin(1e-12));
  }
}

TEST_CASE("a triangular solve is substitution, of either triangle, with and without a diagonal") {
  const int size = GENERATE(1, 2, 3, 7, 8, 17);
  const bool upper = GENERATE(false, true), unit = GENERATE(false, true);
  CAPTURE(size, upper, unit);
  const auto n = static_cast<size_t>(size);
  const std::vector<std::string> types = {fmt::format("f32[\"batch=2 row={0} col={0}\"]", size),
                                          fmt::format("f32[\"batch=2 row={} rhs=3\"]", size)};
  const Application solve = [=](const Tensors& in) {
    return triangular_solve(in[0], in[1], "row", "col", {upper, unit});
  };
  ReferenceInputs inputs =
      sample_inputs(traced({}, types, [](const Tensors& in) { return in[0]; }));
  Values& a = inputs.at("x0");
  for (size_t batch = 0; batch < 2; ++batch)
    for (size_t i = 0; i < n; ++i) a[(batch * n + i) * n + i] += 2.5;
  const Values& b = inputs.at("x1");
  Values x(b.size(), 0.0);
  for (size_t batch = 0; batch < 2; ++batch)
    for (size_t step = 0; step < n; ++step) {
      const size_t i = upper ? n - 1 - step : step;
      for (size_t r = 0; r < 3; ++r) {
        double rest = b[(batch * n + i) * 3 + r];
        for (size_t j = upper ? i + 1 : 0; j < (upper ? n : i); ++j)
          rest -= a[(batch * n + i) * n + j] * x[(batch * n + j) * 3 + r];
        x[(batch * n + i) * 3 + r] = unit ? rest : rest / a[(batch * n + i) * n + i];
      }
    }
  const Values got = value_of(types, inputs, solve);
  for (size_t i = 0; i < x.size(); ++i) REQUIRE(got[i] == Approx(x[i]).epsilon(1e-9).margin(1e-12));
  // Elements outside of the triangle are not read.
  for (size_t batch = 0; batch < 2; ++batch)
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j)
        if ((i == j && unit) || (upper ? j < i : j > i)) a[(batch * n + i) * n + j] = std::nan("");
  REQUIRE(value_of(types, inputs, solve) == got);
}

TEST_CASE("a linear recurrence is an associative scan") {
  const int size = GENERATE(1, 2, 3, 6, 13, 16);
  const std::vector<std::string> types(2, fmt::format("f32[\"batch=2 seq={} embed=2\"]", size));
  const Application scan = [](const Tensors& in) {
    return associative_scan(recurrence, in, "seq")[1];
  };
  const ReferenceInputs inputs = sample_inputs(traced({}, types, scan));
  const Values &a = inputs.at("x0"), &b = inputs.at("x1");
  Values h = b;
  for (size_t i = 0; i < h.size(); ++i)
    if (i / 2 % static_cast<size_t>(size) != 0) h[i] += a[i] * h[i - 2];
  const Values got = value_of(types, inputs, scan);
  for (size_t i = 0; i < h.size(); ++i) REQUIRE(got[i] == Approx(h[i]).margin(1e-12));
}

TEST_CASE("the order of a function that does not commute is kept") {
  // The last element: combine returns the later one.
  const auto last = [](const Tensors&, const Tensors& later) { return later; };
  const auto first = [](const Tensors& earlier, const Tensors&) { return earlier; };
  const std::vector<std::string> types = {"f32[\"seq=5\"]"};
  const ReferenceInputs inputs = {{"x0", {1, 2, 3, 4, 5}}};
  REQUIRE(value_of(types, inputs, [&](const Tensors& in) {
            return associative_scan(last, in, "seq")[0];
          }) == Values{1, 2, 3, 4, 5});
  REQUIRE(value_of(types, inputs, [&](const Tensors& in) {
            return associative_scan(first, in, "seq")[0];
          }) == Values{1, 1, 1, 1, 1});
}

TEST_CASE("logsumexp neither overflows nor turns infinities into NaN") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Values got = value_of(
      {"f32[\"a=4 b=2\"]"}, {{"x0", {1000, 1000, -infinity, -infinity, -infinity, 3, infinity, 0}}},
      [](const Tensors& in) { return logsumexp(in[0], "b"); });
  REQUIRE(got[0] == Approx(1000 + std::log(2.0)));
  REQUIRE(got[1] == -infinity);
  REQUIRE(got[2] == Approx(3));
  REQUIRE(got[3] == infinity);
}

TEST_CASE("argmax is the first of the greatest elements") {
  REQUIRE(value_of({"f32[\"a=3 b=3\"]"}, {{"x0", {1, 5, 5, 7, 2, 7, -3, -2, -1}}},
                   [](const Tensors& in) { return cast(argmax(in[0], "b"), DType::kF32); }) ==
          Values{1, 0, 2});
}

TEST_CASE("solves, scans, logsumexp and argmax on a mesh have one device's numbers") {
  const Application solve = [](const Tensors& in) {
    return triangular_solve(in[0] + 2.0, in[1], "row", "col");
  };
  require_same_when_split(
      {"f32[\"batch=4 row=3 col=3\"]", "f32[\"batch=4 row=3 rhs=4\"]"},
      {"f32[\"batch/data=4 row=3 col=3\"]", "f32[\"batch/data=4 row=3 rhs/mdl=4\"]"}, solve);
  require_same_when_split({"f32[\"row=3 col=3\"]", "f32[\"batch=4 row=3\"]"},
                          {"f32[\"row=3 col=3\"]", "f32[\"batch/data=4 row=3\"]"}, solve);
  require_same_when_split(
      std::vector<std::string>(2, "f32[\"batch=4 seq=5 embed=2\"]"),
      std::vector<std::string>(2, "f32[\"batch/data=4 seq=5 embed/mdl=2\"]"),
      [](const Tensors& in) { return associative_scan(recurrence, in, "seq")[1]; });
  const auto sum = [](const Tensors& in) { return logsumexp(in[0], "embed"); };
  require_same_when_split({"f32[\"batch=4 embed=6\"]"}, {"f32[\"batch/data=4 embed/mdl=6\"]"}, sum);
  require_same_when_split({"f32[\"batch=4 embed=6\"]"}, {"f32[\"batch/mdl/data=4 embed=6\"]"}, sum);
  require_same_when_split({"f32[\"batch=4 embed=6\"]"}, {"f32[\"batch/data=4 embed=6\"]"},
                          [](const Tensors& in) { return argmax(in[0], "embed"); });
}

TEST_CASE("solves and scans refuse operands that they cannot compute with") {
  using Catch::Contains;
  const Mesh mesh = Mesh::standard({1, 2, 2});
  const auto solved = [&](const std::string& a, const std::string& b) {
    return outcome(mesh, {a, b},
                   [](const Tensors& in) { return triangular_solve(in[0], in[1], "row", "col"); });
  };
  const std::string b = "f32[\"row=3 rhs=2\"]";
  REQUIRE(solved("f32[\"row=3 col=3\"]", "f32[\"rhs/mdl=2 row=3\"]") == "f32[\"rhs/mdl col\"]");
  REQUIRE_THAT(solved("f32[\"row=3 col=4\"]", b),
               Contains("triangular_solve: x has row=3 and col=4, expected a square matrix"));
  REQUIRE_THAT(solved("f32[\"row=4 col=4\"]", b), Contains("row"));
  REQUIRE_THAT(solved("f32[\"row/mdl=4 col=4\"]", "f32[\"row/mdl=4\"]"), Contains("unsplit"));
  REQUIRE_THAT(solved("f32[\"row=3 col=3\"]", "f32[\"row=3\" + sum(mdl)]"), Contains("place(y)"));
  REQUIRE_THAT(solved("f32[\"batch=2 row=3 col=3\"]", b), Contains("y has no axis 'batch'"));
  REQUIRE_THAT(solved("f32[\"row=3 col=3\"]", "f32[\"row=3 col=2\"]"), Contains("col"));
  const auto scanned = [&](const std::string& x, const std::string& y) {
    return outcome(mesh, {x, y},
                   [](const Tensors& in) { return associative_scan(recurrence, in, "seq")[1]; });
  };
  REQUIRE_THAT(scanned("f32[\"seq/mdl=4\"]", "f32[\"seq/mdl=4\"]"),
               Contains("associative_scan: seq is split; pass whole_along(x, \"seq\")"));
  REQUIRE_THAT(scanned("f32[\"seq=4\"]", "f32[\"seq=6\"]"), Contains("seq"));
  REQUIRE_THAT(scanned("f32[\"seq=4\"]", "f32[\"batch=4\"]"), Contains("no axis 'seq'"));
  REQUIRE_THAT(outcome(mesh, {"f32[\"seq=4\"]"},
                       [](const Tensors& in) {
                         return associative_scan([](auto&, auto&) { return Tensors(); }, in,
                                                 "seq")[0];
                       }),
               Contains("associative_scan: the function returns 0 tensors, expected 1"));
}

}  // namespace
}  // namespace tessera
