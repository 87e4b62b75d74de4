// SPDX-License-Identifier: Apache-2.0
// Initial weights: each distribution's moments, fans, and independence of stacking and threads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <random>

#include "core/base/error.h"
#include "core/base/random.h"
#include "layers/parameter.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

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

struct Moments {
  double mean = 0, deviation = 0, kurtosis = 0, largest = 0;
};

Moments moments_of(const std::vector<double>& values) {
  Moments moments;
  const double count = static_cast<double>(values.size());
  for (const double value : values) moments.mean += value / count;
  double second = 0, fourth = 0;
  for (const double value : values) {
    const double centered = value - moments.mean;
    second += centered * centered / count;
    fourth += centered * centered * centered * centered / count;
    moments.largest = std::max(moments.largest, std::abs(value));
  }
  moments.deviation = std::sqrt(second);
  moments.kurtosis = fourth / (second * second);
  return moments;
}

TEST_CASE("each distribution has its moments") {
  const std::vector<Axis> axes = {{"a", 1000, {}}, {"b", 1000, {}}};  // Errors of about 1e-3.
  const Moments normal = moments_of(initial_values(parameter_of(InitKind::kGaussian, 0.5, axes)));
  REQUIRE(normal.mean == Approx(0).margin(2e-3));
  REQUIRE(normal.deviation == Approx(0.5).epsilon(3e-3));
  REQUIRE(normal.kurtosis == Approx(3.0).epsilon(1e-2));
  REQUIRE(normal.largest > 0.5 * 4.5);

  const Moments uniform = moments_of(initial_values(parameter_of(InitKind::kUniform, 0.5, axes)));
  REQUIRE(uniform.mean == Approx(0).margin(2e-3));
  REQUIRE(uniform.deviation == Approx(0.5 / std::sqrt(3.0)).epsilon(3e-3));
  REQUIRE(uniform.largest <= 0.5);

  // A normal cut at ±2 has standard deviation 0.87962566.
  const Moments cut =
      moments_of(initial_values(parameter_of(InitKind::kTruncatedGaussian, 0.5, axes)));
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

TEST_CASE("combined QKV weights get Pax's small Xavier limit") {
  // Pax's 1B model: D 2560, 20 heads of 128; the reference names 0.0023.
  const Parameter qkv =
      parameter_of(InitKind::kXavier, 1.0,
                   {{"qkv", 3, {}}, {"embed", 2560, {}}, {"heads", 20, {}}, {"head_dim", 128, {}}});
  REQUIRE(draw_of(qkv).factor == Approx(0.0023).epsilon(0.01));
}

TEST_CASE("a stacked weight has the values of the unrolled layers") {
  Parameter unrolled = parameter_of(InitKind::kGaussian, 1.0, {{"a", 7, {}}, {"b", 3, {}}});
  unrolled.random_path = "x_layers[].w";
  Parameter stacked = unrolled;
  stacked.stack = 3;
  stacked.type.axes.insert(stacked.type.axes.begin(), {"layers", 3, {}});
  const std::vector<double> all = initial_values(stacked);
  for (int64_t layer = 0; layer < 3; ++layer) {
    unrolled.layer = layer;
    const std::vector<double> one = initial_values(unrolled);
    REQUIRE(std::equal(one.begin(), one.end(), all.begin() + layer * 21));
  }
}

TEST_CASE("values depend on seed and path, not on threads") {
  Parameter parameter = parameter_of(InitKind::kGaussian, 1.0, {{"a", 300001, {}}});
  const std::vector<double> values = initial_values(parameter, 5, 1);
  REQUIRE(values == initial_values(parameter, 5, 3));
  REQUIRE(values != initial_values(parameter, 6, 1));
  parameter.random_path = "v";
  REQUIRE(values != initial_values(parameter, 5, 1));
}

TEST_CASE("draws by rows equal draws by element") {
  const uint64_t key = random_key(3, "w");
  for (const StreamRows& rows :
       {StreamRows{8, 1003, 0}, StreamRows{0, 1, 5}, StreamRows{7, 3, 3}, StreamRows{3, 17, 1000},
        StreamRows{5, 300, 4001}, StreamRows{1, 256, 256}, StreamRows{2, 1030, 1031}}) {
    const int64_t count = 5;
    std::vector<float> uniform(static_cast<size_t>(count * rows.length));
    std::vector<float> normal(uniform.size());
    draw_uniform(key, rows, uniform);
    draw_normal(key, rows, normal);
    for (size_t i = 0; i < uniform.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const auto element =
          static_cast<uint64_t>(rows.first + at / rows.length * rows.stride + at % rows.length);
      const PhiloxBlock block = philox(key, element / 4, 0);
      REQUIRE(uniform[i] == uniform_from_bits(block[element % 4]));
      REQUIRE(normal[i] == normals_from_block(block)[element % 4]);
    }
  }
}

// Every element of a block, copied out of the whole weight.
std::vector<float> part_of(const std::vector<float>& whole, const std::vector<Axis>& axes,
                           const Region& block) {
  std::vector<float> part;
  int64_t elements = 1;
  for (const int64_t size : block.shape) elements *= size;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t rest = i, element = 0, inner = 1;
    for (size_t axis = axes.size(); axis-- > 0; rest /= block.shape[axis]) {
      element += (block.origin[axis] + rest % block.shape[axis]) * inner;
      inner *= axes[axis].size;
    }
    part.push_back(whole[static_cast<size_t>(element)]);
  }
  return part;
}

TEST_CASE("a block has the values of the whole weight, for every initialiser") {
  std::mt19937_64 random(11);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int kind = 0; kind <= static_cast<int>(InitKind::kScaledDeltaOrthogonal); ++kind) {
    const bool matrix = static_cast<InitKind>(kind) == InitKind::kScaledDeltaOrthogonal;
    for (int trial = 0; trial < 30; ++trial) {
      Parameter parameter = parameter_of(static_cast<InitKind>(kind), 0.7, {});
      const int64_t rank = matrix ? 2 : below(5);
      std::vector<Axis>& axes = parameter.type.axes;
      for (int64_t i = 0; i < rank; ++i)
        axes.push_back(
            {std::string(1, static_cast<char>('a' + i)), 1 + below(i + 1 == rank ? 300 : 12), {}});
      if (trial % 3 == 0) {
        parameter.stack = 1 + below(5);
        axes.insert(axes.begin(), {"layers", parameter.stack, {}});
      }
      if (trial % 2 == 1) parameter.type.dtype = DType::kBF16;
      Region block;
      int64_t elements = 1;
      for (const Axis& axis : axes) {
        block.origin.push_back(below(4) == 0 ? 0 : below(axis.size));
        const int64_t room = axis.size - block.origin.back();
        block.shape.push_back(below(3) == 0 ? room : 1 + below(room));
        elements *= block.shape.back();
      }
      const int64_t width = dtype_bytes(parameter.type.dtype);
      std::vector<std::byte> whole(static_cast<size_t>(parameter.type.bytes()));
      std::vector<std::byte> made(static_cast<size_t>(elements * width));
      initialize(parameter, 5, whole_of(parameter), whole, 1);
      initialize(parameter, 5, block, made, 2);
      const auto widened = [&](const std::vector<std::byte>& bytes) {
        std::vector<float> values;
        for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(width)) {
          uint32_t bits = 0;
          std::memcpy(&bits, bytes.data() + at, static_cast<size_t>(width));
          values.push_back(std::bit_cast<float>(width == 2 ? bits << 16 : bits));
        }
        return values;
      };
      CAPTURE(kind, trial, parameter.type.text_sized(), block.origin, block.shape);
      REQUIRE(widened(made) == part_of(widened(whole), axes, block));
    }
  }
}

TEST_CASE("a block of a weight that exceeds memory can be drawn") {
  Parameter parameter =
      parameter_of(InitKind::kGaussian, 0.02, {{"vocab", 1000000, {}}, {"embed", 12288, {}}});
  parameter.stack = 96;  // Nearly five terabytes.
  parameter.type.axes.insert(parameter.type.axes.begin(), {"layers", 96, {}});
  std::vector<float> block(2 * 8 * 5), row(12288);
  initialize(parameter, 9, {{94, 999992, 12283}, {2, 8, 5}},
             std::as_writable_bytes(std::span(block)), 1);
  initialize(parameter, 9, {{95, 999993, 0}, {1, 1, 12288}}, std::as_writable_bytes(std::span(row)),
             1);
  REQUIRE(std::equal(row.end() - 5, row.end(), block.begin() + 8 * 5 + 5));
}

TEST_CASE("normals are Box-Muller draws to f32 accuracy") {
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
  const std::vector<double> w = initial_values(
      parameter_of(InitKind::kScaledDeltaOrthogonal, 2.0, {{"a", 5, {}}, {"b", 9, {}}}));
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      double product = 0;
      for (size_t k = 0; k < 9; ++k) product += w[i * 9 + k] * w[j * 9 + k];
      REQUIRE(product == Approx(i == j ? 4.0 : 0.0).margin(1e-5));
    }
  }
}

TEST_CASE("an unsuitable initialiser is refused with the weight's path") {
  const Parameter cube = parameter_of(InitKind::kScaledDeltaOrthogonal, 1.0,
                                      {{"a", 2, {}}, {"b", 2, {}}, {"c", 2, {}}});
  REQUIRE_THROWS_WITH(initial_values(cube),
                      "w: scaled_delta_orthogonal is for matrices, got f32[\"a=2 b=2 c=2\"]; use "
                      "xavier or gaussian");
}

TEST_CASE("the weights of a 124M model are drawn in about a second of one core", "[full]") {
  const Parameter table =
      parameter_of(InitKind::kGaussian, 0.02, {{"a", 124, {}}, {"b", 1000000, {}}});
  std::vector<float> values(static_cast<size_t>(table.type.elements()));
  const std::clock_t begin = std::clock();  // Processor time of all threads.
  initialize(table, 1, whole_of(table), std::as_writable_bytes(std::span(values)), 2);
  REQUIRE(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 2.0);
}

}  // namespace
}  // namespace tessera
