// SPDX-License-Identifier: Apache-2.0
// Initial weights: each distribution's moments, fans, and independence of stacking and threads.
#include "layers/initialize.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

Parameter parameter_of(InitKind kind, double scale, std::vector<Axis> axes, FanAxes fans = {}) {
  Parameter parameter;
  parameter.path = parameter.random_path = "w";
  parameter.type = make_type(DType::kF32, std::move(axes));
  parameter.init = {kind, scale};
  parameter.fans = std::move(fans);
  return parameter;
}

std::vector<float> values_of(const Parameter& parameter, uint64_t seed = 1, int threads = 2) {
  std::vector<float> values(static_cast<size_t>(parameter.type.elements()));
  initialize(parameter, seed, std::as_writable_bytes(std::span(values)), threads);
  return values;
}

struct Moments {
  double mean = 0, deviation = 0, kurtosis = 0, largest = 0;
};

Moments moments_of(const std::vector<float>& values) {
  Moments moments;
  const double count = static_cast<double>(values.size());
  for (const float value : values) moments.mean += value / count;
  double second = 0, fourth = 0;
  for (const float value : values) {
    const double centred = value - moments.mean;
    second += centred * centred / count;
    fourth += centred * centred * centred * centred / count;
    moments.largest = std::max(moments.largest, std::abs(static_cast<double>(value)));
  }
  moments.deviation = std::sqrt(second);
  moments.kurtosis = fourth / (second * second);
  return moments;
}

TEST_CASE("each distribution has its moments") {
  const std::vector<Axis> axes = {{"a", 1000, {}}, {"b", 1000, {}}};  // Errors of about 1e-3.
  const Moments normal = moments_of(values_of(parameter_of(InitKind::kGaussian, 0.5, axes)));
  REQUIRE(normal.mean == Approx(0).margin(2e-3));
  REQUIRE(normal.deviation == Approx(0.5).epsilon(3e-3));
  REQUIRE(normal.kurtosis == Approx(3.0).epsilon(1e-2));
  REQUIRE(normal.largest > 0.5 * 4.5);

  const Moments uniform = moments_of(values_of(parameter_of(InitKind::kUniform, 0.5, axes)));
  REQUIRE(uniform.mean == Approx(0).margin(2e-3));
  REQUIRE(uniform.deviation == Approx(0.5 / std::sqrt(3.0)).epsilon(3e-3));
  REQUIRE(uniform.largest <= 0.5);

  // A normal cut at ±2 has standard deviation 0.87962566.
  const Moments cut = moments_of(values_of(parameter_of(InitKind::kTruncatedGaussian, 0.5, axes)));
  REQUIRE(cut.deviation == Approx(0.5 * 0.87962566).epsilon(3e-3));
  REQUIRE(cut.largest <= 1.0);
  REQUIRE(cut.largest > 0.999);
}

TEST_CASE("initialisers scale by the sizes they name") {
  const std::vector<Axis> axes = {{"in", 8, {}}, {"heads", 4, {}}, {"head_dim", 2, {}}};
  const auto factor = [&](InitKind kind, FanAxes fans = {}) {
    return draw_of(parameter_of(kind, 1.0, axes, std::move(fans))).factor;
  };
  // By default fans are the last two axes times all others: in 8·4, out 8·2.
  REQUIRE(factor(InitKind::kXavier) == Approx(std::sqrt(6.0 / (32 + 16))));
  REQUIRE(factor(InitKind::kGaussianSqrtFanIn) == Approx(1 / std::sqrt(32.0)));
  const FanAxes matrix{{"in"}, {"heads", "head_dim"}};
  REQUIRE(factor(InitKind::kXavier, matrix) == Approx(std::sqrt(6.0 / 16)));
  REQUIRE(factor(InitKind::kGaussianSqrtFanIn, matrix) == Approx(1 / std::sqrt(8.0)));
  REQUIRE(factor(InitKind::kTruncatedGaussianSqrtFanOut, matrix) == Approx(1 / std::sqrt(8.0)));
  REQUIRE(factor(InitKind::kGaussianSqrtFanAvg, matrix) == Approx(std::sqrt(2.0 / 16)));
  REQUIRE(factor(InitKind::kGaussianSqrtDim) == Approx(1 / std::sqrt(8.0)));
  REQUIRE(factor(InitKind::kUniformUnitScaling) == Approx(std::sqrt(3.0 / 32)));
}

TEST_CASE("combined query, key and value weights get Pax's small Xavier limit") {
  // Pax's 1B model: D 2560, 20 heads of 128; the reference names 0.0023.
  const Parameter qkv =
      parameter_of(InitKind::kXavier, 1.0,
                   {{"qkv", 3, {}}, {"embed", 2560, {}}, {"heads", 20, {}}, {"head_dim", 128, {}}});
  REQUIRE(draw_of(qkv).factor == Approx(0.0023).epsilon(0.01));
}

TEST_CASE("a stacked weight holds what unrolled layers draw") {
  Parameter unrolled = parameter_of(InitKind::kGaussian, 1.0, {{"a", 7, {}}, {"b", 3, {}}});
  unrolled.random_path = "x_layers[].w";
  Parameter stacked = unrolled;
  stacked.stack = 3;
  stacked.type.axes.insert(stacked.type.axes.begin(), {"layers", 3, {}});
  const std::vector<float> all = values_of(stacked);
  for (int64_t layer = 0; layer < 3; ++layer) {
    unrolled.layer = layer;
    const std::vector<float> one = values_of(unrolled);
    REQUIRE(std::equal(one.begin(), one.end(), all.begin() + layer * 21));
  }
}

TEST_CASE("values depend on seed and path, not on threads") {
  Parameter parameter = parameter_of(InitKind::kGaussian, 1.0, {{"a", 300001, {}}});
  const std::vector<float> values = values_of(parameter, 5, 1);
  REQUIRE(values == values_of(parameter, 5, 3));
  REQUIRE(values != values_of(parameter, 6, 1));
  parameter.random_path = "v";
  REQUIRE(values != values_of(parameter, 5, 1));
}

TEST_CASE("runs of draws are the elements the one formula gives") {
  const uint64_t key = random_key(3, "w");
  std::vector<float> uniform(1003), normal(1003);
  draw_uniform(key, 8, uniform);
  draw_normal(key, 8, normal);
  for (size_t i = 0; i < uniform.size(); ++i) {
    const size_t element = i + 8;
    const PhiloxBlock block = philox(key, element / 4, 0);
    REQUIRE(uniform[i] == uniform_from_bits(block[element % 4]));
    REQUIRE(normal[i] == normals_from_block(block)[element % 4]);
  }
}

TEST_CASE("normals are Box and Muller's to f32 accuracy") {
  for (uint64_t i = 0; i < 100000; ++i) {
    const PhiloxBlock block = philox(7, i, 0);
    const std::array<float, 4> normals = normals_from_block(block);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_from_bits(block[0])));
    const double angle = 2.0 * 3.14159265358979323846 * uniform_from_bits(block[1]);
    REQUIRE(normals[0] == Approx(radius * std::cos(angle)).margin(2e-6));
    REQUIRE(normals[1] == Approx(radius * std::sin(angle)).margin(2e-6));
  }
}

TEST_CASE("orthogonal weights are orthogonal") {
  const std::vector<float> w =
      values_of(parameter_of(InitKind::kScaledDeltaOrthogonal, 2.0, {{"a", 5, {}}, {"b", 9, {}}}));
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      double product = 0;
      for (size_t k = 0; k < 9; ++k) product += double{w[i * 9 + k]} * w[j * 9 + k];
      REQUIRE(product == Approx(i == j ? 4.0 : 0.0).margin(1e-5));
    }
  }
}

TEST_CASE("an initialiser that does not suit is refused by path") {
  const Parameter cube = parameter_of(InitKind::kScaledDeltaOrthogonal, 1.0,
                                      {{"a", 2, {}}, {"b", 2, {}}, {"c", 2, {}}});
  REQUIRE_THROWS_WITH(values_of(cube),
                      "w: scaled_delta_orthogonal suits matrices, not f32[\"a=2 b=2 c=2\"]; take "
                      "xavier or gaussian");
}

TEST_CASE("the weights of a 124M model are drawn in about a second of one core", "[full]") {
  const Parameter table =
      parameter_of(InitKind::kGaussian, 0.02, {{"a", 124, {}}, {"b", 1000000, {}}});
  std::vector<float> values(static_cast<size_t>(table.type.elements()));
  const std::clock_t begin = std::clock();  // Of all threads together; other programs not counted.
  initialize(table, 1, std::as_writable_bytes(std::span(values)), 2);
  REQUIRE(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 2.0);
}

}  // namespace
}  // namespace tessera
