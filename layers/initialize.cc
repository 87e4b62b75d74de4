// SPDX-License-Identifier: Apache-2.0
#include "layers/initialize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "core/base/random.h"

namespace tessera {
namespace {

using Distribution = Draw::Distribution;

// The weight's own axes: those of one layer of a stack.
std::vector<Axis> layer_axes(const Parameter& parameter) {
  const std::vector<Axis>& axes = parameter.type.axes;
  return {axes.begin() + (parameter.stack > 0 ? 1 : 0), axes.end()};
}

double product_of(const std::vector<Axis>& axes, const std::vector<std::string>& names) {
  double product = 1.0;
  for (const Axis& axis : axes) {
    if (std::find(names.begin(), names.end(), axis.name) != names.end())
      product *= static_cast<double>(axis.size);
  }
  return product;
}

struct Fans {
  double in = 1.0, out = 1.0;
};

Fans fans_of(const Parameter& parameter) {
  const std::vector<Axis> axes = layer_axes(parameter);
  if (!parameter.fans.in.empty() || !parameter.fans.out.empty())
    return {product_of(axes, parameter.fans.in), product_of(axes, parameter.fans.out)};
  if (axes.empty()) return {};
  const double last = static_cast<double>(axes.back().size);
  if (axes.size() == 1) return {last, last};
  double rest = 1.0;
  for (size_t i = 0; i + 2 < axes.size(); ++i) rest *= static_cast<double>(axes[i].size);
  return {rest * static_cast<double>(axes[axes.size() - 2].size), rest * last};
}

// One layer's weight as draws of one stream; runs of it may be made in any order.
constexpr int64_t kRun = 1 << 16;  // Elements a thread makes at a time.

void draw_run(const Draw& draw, uint64_t key, int64_t first, std::span<float> out) {
  const float factor = static_cast<float>(draw.factor);
  switch (draw.distribution) {
    case Distribution::kConstant:
      std::fill(out.begin(), out.end(), factor);
      return;
    case Distribution::kNormal:
      draw_normal(key, first, out);
      break;
    case Distribution::kTruncatedNormal:
      draw_truncated_normal(key, first, out);
      break;
    case Distribution::kUniform:
      draw_uniform(key, first, out);
      for (float& value : out) value = 2.0f * value - 1.0f;
      break;
    case Distribution::kOrthogonal:
      CHECK(false, "orthogonal weights are made whole");
      break;
  }
  for (float& value : out) value *= factor;
}

// A random orthogonal matrix (rows or columns orthonormal, whichever are fewer): normals, made
// orthogonal by Gram and Schmidt's method, twice over for accuracy.
void draw_orthogonal(double factor, uint64_t key, const std::vector<Axis>& axes,
                     std::span<float> out) {
  const int64_t rows = axes[0].size, columns = axes[1].size;
  draw_normal(key, 0, out);
  const bool by_rows = rows <= columns;
  const int64_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
  std::vector<std::vector<double>> basis;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> vector(static_cast<size_t>(length));
    const auto element = [&](int64_t j) -> float& {
      return out[static_cast<size_t>(by_rows ? i * columns + j : j * columns + i)];
    };
    for (int64_t j = 0; j < length; ++j) vector[static_cast<size_t>(j)] = element(j);
    for (int pass = 0; pass < 2; ++pass) {
      for (const std::vector<double>& earlier : basis) {
        double overlap = 0.0;
        for (size_t j = 0; j < vector.size(); ++j) overlap += vector[j] * earlier[j];
        for (size_t j = 0; j < vector.size(); ++j) vector[j] -= overlap * earlier[j];
      }
    }
    double square = 0.0;
    for (const double value : vector) square += value * value;
    for (double& value : vector) value /= std::sqrt(square);
    for (int64_t j = 0; j < length; ++j)
      element(j) = static_cast<float>(factor * vector[static_cast<size_t>(j)]);
    basis.push_back(std::move(vector));
  }
}

void store(std::span<const float> values, DType dtype, std::byte* destination) {
  if (dtype == DType::kF32) {
    std::memcpy(destination, values.data(), values.size_bytes());
    return;
  }
  auto* narrow = reinterpret_cast<BFloat16*>(destination);
  for (size_t i = 0; i < values.size(); ++i) narrow[i] = BFloat16(values[i]);
}

// Calls work(i) for i in [0, count), each once, on up to `threads` threads.
template <typename Work>
void share_out(int64_t count, int threads, Work work) {
  std::atomic<int64_t> next = 0;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) helpers.emplace_back(run);
  run();
}

}  // namespace

Draw draw_of(const Parameter& parameter) {
  const double scale = parameter.init.scale;
  const Fans fans = fans_of(parameter);
  const std::vector<Axis> axes = layer_axes(parameter);
  const double dim0 = axes.empty() ? 1.0 : static_cast<double>(axes.front().size);
  const double average = (fans.in + fans.out) / 2.0;
  using enum Distribution;
  switch (parameter.init.kind) {
    case InitKind::kConstant:
      return {kConstant, scale};
    case InitKind::kGaussian:
      return {kNormal, scale};
    case InitKind::kUniform:
      return {kUniform, scale};
    case InitKind::kTruncatedGaussian:
      return {kTruncatedNormal, scale};
    case InitKind::kXavier:
      return {kUniform, scale * std::sqrt(3.0 / average)};
    case InitKind::kGaussianSqrtDim:
      return {kNormal, scale / std::sqrt(dim0)};
    case InitKind::kUniformSqrtDim:
      return {kUniform, scale / std::sqrt(dim0)};
    case InitKind::kTruncatedGaussianSqrtDim:
      return {kTruncatedNormal, scale / std::sqrt(dim0)};
    case InitKind::kGaussianSqrtFanIn:
      return {kNormal, scale / std::sqrt(fans.in)};
    case InitKind::kGaussianSqrtFanOut:
      return {kNormal, scale / std::sqrt(fans.out)};
    case InitKind::kGaussianSqrtFanAvg:
      return {kNormal, scale / std::sqrt(average)};
    case InitKind::kUniformSqrtFanAvg:
      return {kUniform, scale * std::sqrt(3.0 / average)};
    case InitKind::kTruncatedGaussianSqrtFanIn:
      return {kTruncatedNormal, scale / std::sqrt(fans.in)};
    case InitKind::kTruncatedGaussianSqrtFanOut:
      return {kTruncatedNormal, scale / std::sqrt(fans.out)};
    case InitKind::kUniformUnitScaling:
      return {kUniform, scale * std::sqrt(3.0 / fans.in)};
    case InitKind::kScaledDeltaOrthogonal:
      // As in Pax: a vector is drawn as normals; kernels of convolutions there are none here.
      if (axes.size() < 2) return {kNormal, scale};
      if (axes.size() == 2) return {kOrthogonal, scale};
      fail("{}: scaled_delta_orthogonal suits matrices, not {}; take xavier or gaussian",
           parameter.path, parameter.type.text_sized());
  }
  CHECK(false, "an initialiser without a rule");
  return {};
}

void initialize(const Parameter& parameter, uint64_t seed, std::span<std::byte> destination,
                int threads) {
  const DType dtype = parameter.type.dtype;
  CHECK(static_cast<int64_t>(destination.size()) == parameter.type.bytes());
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: weights are f32 or bf16, got {}", parameter.path, dtype_name(dtype));
  const Draw draw = draw_of(parameter);
  const std::vector<Axis> axes = layer_axes(parameter);
  const int64_t layers = std::max<int64_t>(parameter.stack, 1);
  const int64_t elements = parameter.type.elements() / layers;
  const int64_t run = draw.distribution == Distribution::kOrthogonal ? elements : kRun;
  const int64_t runs = (elements + run - 1) / run;
  share_out(layers * runs, threads, [&](int64_t i) {
    const int64_t layer = i / runs, first = i % runs * run;
    const uint64_t key =
        random_key(seed, parameter.random_path, parameter.stack > 0 ? layer : parameter.layer);
    std::vector<float> values(static_cast<size_t>(std::min(run, elements - first)));
    if (draw.distribution == Distribution::kOrthogonal) {
      draw_orthogonal(draw.factor, key, axes, values);
    } else {
      draw_run(draw, key, first, values);
    }
    store(values, dtype, destination.data() + (layer * elements + first) * dtype_bytes(dtype));
  });
}

}  // namespace tessera
