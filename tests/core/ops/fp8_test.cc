// SPDX-License-Identifier: Apache-2.0
// 8-bit floats: rounding against all codes of the formats, in the reference and on the CPU, the
// scale, numbers that are not finite, and the gradient of products.
#include "core/ops/fp8.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/devices/cpu/device.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Table 1 of Micikevicius et al. (2022). `codes` is the number of finite codes without sign.
struct Format {
  Tensor (*round)(Operand, Operand);
  int digits, bias, codes;
  double largest;
};
const Format kFormats[] = {{round_e4m3, 3, 7, 0x7f, 448.0}, {round_e5m2, 2, 15, 0x7c, 57344.0}};

double decoded(const Format& format, int code) {
  const int exponent = code >> format.digits;
  const double fraction = std::ldexp(code & ((1 << format.digits) - 1), -format.digits);
  return exponent == 0 ? std::ldexp(fraction, 1 - format.bias)
                       : std::ldexp(1.0 + fraction, exponent - format.bias);
}

using Values = std::vector<double>;

// The rounded values by the reference interpreter and the CPU's kernel.
Values rounded_by(const Format& format, const Values& x, double amax, DType dtype = DType::kF32) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  {
    const TraceScope trace(graph, mesh, rules);
    const auto rows = static_cast<int64_t>(x.size());
    output("y", format.round(input("x", InputKind::kBatch, make_type(dtype, {{"row", rows, {}}})),
                             input("amax", InputKind::kBatch, make_type(dtype, {}))));
  }
  const ReferenceInputs inputs = {{"x", x}, {"amax", {amax}}};
  const Values expected = evaluate(graph, inputs).at("y").values;
  const auto device = make_cpu_device(1);
  const Values got = run_graph(graph, inputs, *device).at("y");
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i], amax);
    REQUIRE((got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))));
  }
  return got;
}

TEST_CASE("the largest codes have the values of the paper") {
  for (const Format& format : kFormats)
    REQUIRE(decoded(format, format.codes - 1) == format.largest);
  REQUIRE(decoded(kFormats[0], 1) == std::ldexp(1.0, -9));
  REQUIRE(decoded(kFormats[1], 1) == std::ldexp(1.0, -16));
}

TEST_CASE(
    "numbers round to the nearest code, halfway to the even one, and beyond all to the largest") {
  for (const Format& format : kFormats) {
    for (const int power : {0, -40, 50}) {  // Power of the scale.
      Values x, expected;
      const auto add = [&](double from, double to) {
        for (const double sign : {1.0, -1.0}) {
          x.push_back(sign * std::ldexp(from, power));
          expected.push_back(sign * std::ldexp(to, power));
        }
      };
      for (int code = 0; code + 1 < format.codes; ++code) {
        const double low = decoded(format, code), high = decoded(format, code + 1);
        const double half = (low + high) / 2;
        add(low, low);
        add(half * (1 - 0x1p-12), low);
        add(half, code % 2 == 0 ? low : high);
        add(half * (1 + 0x1p-12), high);
      }
      add(format.largest, format.largest);
      add(format.largest * 1.01, format.largest);
      add(format.largest * 1e4, format.largest);
      REQUIRE(rounded_by(format, x, std::ldexp(format.largest, power)) == expected);
    }
  }
}

TEST_CASE("the scale is the largest power of two that keeps the maximum in range") {
  const Format& e4m3 = kFormats[0];
  const double least = std::ldexp(1.0, -17);  // The least code at a scale of 2^8.
  REQUIRE(rounded_by(e4m3, {least, 1.0}, 1.0) == Values{least, 1.0});
  REQUIRE(rounded_by(e4m3, {least, 1.75}, 1.75) == Values{least, 1.75});
  REQUIRE(rounded_by(e4m3, {least, 2 * least}, 1.7578125, DType::kBF16) == Values{0, 2 * least});
  const Format& e5m2 = kFormats[1];
  REQUIRE(rounded_by(e5m2, {std::ldexp(1.0, -31)}, 1.75) == Values{std::ldexp(1.0, -31)});
  REQUIRE(rounded_by(e5m2, {std::ldexp(1.0, -31)}, 1.875) == Values{0});
  // The ends of the range of f32.
  const double greatest = std::ldexp(1.75, 127);
  REQUIRE(rounded_by(e4m3, {greatest, -greatest}, greatest) == Values{greatest, -greatest});
  REQUIRE(rounded_by(e5m2, {0.0, 1e-41}, 1e-41) == Values{0.0, 0.0});
}

TEST_CASE("a maximum that is not finite makes all elements NaN, and NaN stays NaN") {
  const double nan = std::nan("");
  for (const Format& format : kFormats) {
    for (const double amax : {kInfinity, nan})
      for (const double y : rounded_by(format, {0.0, 1.0, -3.0}, amax)) REQUIRE(std::isnan(y));
    const Values some = rounded_by(format, {nan, 1.0}, 1.0);
    REQUIRE(std::isnan(some[0]));
    REQUIRE(some[1] == 1.0);
    REQUIRE(rounded_by(format, {0.0, 0.0}, 0.0) == Values{0.0, 0.0});
  }
}

// Squares of the sample inputs have a wider range of exponents, so that small ones are subnormal.
TEST_CASE("a product rounds its operands to E4M3, and the cotangent to E5M2 in its gradient") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  {
    const TraceScope trace(graph, mesh, rules);
    const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch=6 embed=10\"]"));
    const Tensor w = input("w", InputKind::kBatch, parse_type("f32[\"embed=10 mlp=7\"]"));
    const Tensor dy = input("dy", InputKind::kBatch, parse_type("f32[\"batch=6 mlp=7\"]"));
    const Tensor y = fp8_product(x, w, over("embed"));
    const std::vector<Tensor> gradient = gradients(reduce_sum(y * dy), {x, w});
    const auto operand = [](const Tensor& t) { return round_e4m3(t, absolute_maximum(t)); };
    const Tensor narrow = round_e5m2(dy, absolute_maximum(dy));
    output("y", y);
    output("dx", gradient[0]);
    output("dw", gradient[1]);
    output("expected y", einsum(operand(x), operand(w), over("embed")));
    output("expected dx", einsum("batch mlp, embed mlp -> batch embed", narrow, operand(w)));
    output("expected dw", einsum("batch mlp, batch embed -> embed mlp", narrow, operand(x)));
    output("exact y", einsum(x, w, over("embed")));
  }
  ReferenceInputs inputs = rounded(graph, sample_inputs(graph));
  for (auto& [name, values] : inputs)
    for (double& value : values) value *= value * value;
  const auto results = evaluate(graph, rounded(graph, inputs));
  for (const std::string name : {"y", "dx", "dw"})
    REQUIRE(results.at(name).values == results.at("expected " + name).values);
  REQUIRE(results.at("y").values != results.at("exact y").values);
}

TEST_CASE("an 8-bit product refuses partial sums, which would be rounded before they are summed") {
  const Mesh mesh({{"data", 2}});
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x =
      input("x", InputKind::kBatch, parse_type("f32[\"batch=4 embed=4\" + sum(data)]"));
  const Tensor w = input("w", InputKind::kBatch, parse_type("f32[\"embed=4 mlp=4\"]"));
  REQUIRE_THROWS(fp8_product(x, w, over("embed")));
}

}  // namespace
}  // namespace tessera
