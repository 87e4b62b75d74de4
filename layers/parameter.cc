// SPDX-License-Identifier: Apache-2.0
#include "layers/parameter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/random.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/trace.h"

namespace tessera {
namespace {

std::string layer_of(const Parameter& parameter) {
  const size_t dot = parameter.path.rfind('.');
  return dot == std::string::npos ? "" : parameter.path.substr(0, dot);
}

// Checks rules: one about an axis that no weight of the layer has is an error.
void check_layer_rules(const ParameterTable& table) {
  for (const Parameter& ruled : table.parameters()) {
    const std::string layer = layer_of(ruled);
    std::vector<std::string> axes;
    for (const Parameter& each : table.parameters())
      if (!ruled.rules.empty() && layer_of(each) == layer)
        for (const std::string& axis : each.type.names())
          if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
    for (const AxisRule& rule : ruled.rules) {
      if (std::ranges::find(axes, rule.axis) != axes.end()) continue;
      const ErrorContext where(layer);
      fail("rules.weights \"{}\": no weight of this layer has an axis '{}'; they have {}{}",
           rules_text(ruled.rules), rule.axis, fmt::join(axes, ", "),
           did_you_mean(rule.axis, axes));
    }
  }
}

using Distribution = Draw::Distribution;

// Returns the weight's own axes: those of one layer of a stack.
std::vector<Axis> layer_axes(const Parameter& parameter) {
  const std::vector<Axis>& axes = parameter.type.axes;
  return {axes.begin() + (parameter.stack > 0 ? 1 : 0), axes.end()};
}

double product_of(const std::vector<Axis>& axes, const std::vector<std::string>& names) {
  double product = 1.0;
  for (const Axis& axis : axes)
    if (std::ranges::find(names, axis.name) != names.end())
      product *= static_cast<double>(axis.size);
  return product;
}

bool are_declared(const FanAxes& fans) { return !fans.in.empty() || !fans.out.empty(); }

struct Fans {
  double in = 1.0, out = 1.0;
};

Fans fans_of(const Parameter& parameter) {
  const std::vector<Axis> axes = layer_axes(parameter);
  if (are_declared(parameter.fans) && !parameter.fans.init_by_last_two)
    return {product_of(axes, parameter.fans.in), product_of(axes, parameter.fans.out)};
  if (axes.empty()) return {};
  const double last = static_cast<double>(axes.back().size);
  if (axes.size() == 1) return {last, last};
  double rest = 1.0;
  for (size_t i = 0; i + 2 < axes.size(); ++i) rest *= static_cast<double>(axes[i].size);
  return {rest * static_cast<double>(axes[axes.size() - 2].size), rest * last};
}

constexpr int64_t kChunk = 1 << 16;  // Elements that a thread draws at a time, or one row.

// Draws rows of one layer's weight, which is one random stream.
void draw_rows(const Draw& draw, uint64_t key, const StreamRows& rows, std::span<float> out) {
  const float factor = static_cast<float>(draw.factor);
  switch (draw.distribution) {
    case Distribution::kConstant:
      std::ranges::fill(out, factor);
      return;
    case Distribution::kNormal:
      draw_normal(key, rows, out);
      break;
    case Distribution::kTruncatedNormal:
      draw_truncated_normal(key, rows, out);
      break;
    case Distribution::kUniform:
      draw_uniform(key, rows, out);
      for (float& value : out) value = 2.0f * value - 1.0f;
      break;
    case Distribution::kOrthogonal:
      CHECK(false, "orthogonal weights are not drawn by rows");
      break;
  }
  for (float& value : out) value *= factor;
}

// Draws a random orthogonal matrix (rows or columns orthonormal, whichever are fewer): normals,
// orthogonalised by Gram-Schmidt, twice for accuracy.
void draw_orthogonal(double factor, uint64_t key, const std::vector<Axis>& axes,
                     std::span<float> out) {
  const int64_t rows = axes[0].size, columns = axes[1].size;
  draw_normal(key, {.length = rows * columns}, out);
  const bool by_rows = rows <= columns;
  const int64_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
  const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  std::vector<std::vector<double>> basis;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> vector(static_cast<size_t>(length));
    const auto element = [&](int64_t j) -> float& {
      return out[static_cast<size_t>(by_rows ? i * columns + j : j * columns + i)];
    };
    for (int64_t j = 0; j < length; ++j) vector[static_cast<size_t>(j)] = element(j);
    for (int pass = 0; pass < 2; ++pass) {
      for (const std::vector<double>& earlier : basis) {
        const double overlap = product(vector, earlier);
        for (size_t j = 0; j < vector.size(); ++j) vector[j] -= overlap * earlier[j];
      }
    }
    const double norm = std::sqrt(product(vector, vector));
    for (double& value : vector) value /= norm;
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
  std::transform(values.begin(), values.end(), reinterpret_cast<BFloat16*>(destination),
                 [](float value) { return BFloat16(value); });
}

// The part of one layer's block that a thread draws at a time.
struct Portion {
  int64_t offset = 0;  // Offset in the block, in elements.
  int64_t elements = 0;
  StreamRows rows;  // Rows of the layer's weight.
};

// One layer's block as rows of its weight. A row is the last axes that the block covers whole and
// its part of the axis before them. Rows repeat with a constant stride along the next axis, which
// makes a group; the axes before that enumerate groups.
class BlockRows {
 public:
  // The layer's axes are the block's from `first` on.
  BlockRows(const std::vector<Axis>& axes, const Region& block, size_t first) {
    size_t axis = axes.size();
    int64_t inner = 1;  // Elements of the weight below `axis`.
    for (bool whole = true; axis > 0 && whole;) {
      --axis;
      start_ += block.origin[first + axis] * inner;
      length_ *= block.shape[first + axis];
      inner *= axes[axis].size;
      whole = block.shape[first + axis] == axes[axis].size;
    }
    stride_ = inner;
    if (axis > 0) {
      --axis;
      start_ += block.origin[first + axis] * inner;
      count_ = block.shape[first + axis];
      inner *= axes[axis].size;
    }
    groups_ = {start_};
    while (axis > 0) {
      --axis;
      std::vector<int64_t> more;
      for (int64_t i = 0; i < block.shape[first + axis]; ++i)
        for (const int64_t group : groups_)
          more.push_back((block.origin[first + axis] + i) * inner + group);
      groups_ = std::move(more);
      inner *= axes[axis].size;
    }
  }

  std::vector<Portion> portions() const {
    std::vector<Portion> portions;
    int64_t offset = 0;
    const auto add = [&](const StreamRows& rows, int64_t elements) {
      portions.push_back({offset, elements, rows});
      offset += elements;
    };
    const int64_t together = std::max<int64_t>(kChunk / length_, 1);
    for (const int64_t group : groups_) {
      for (int64_t row = 0; row < count_; row += together) {
        const int64_t begin = group + row * stride_;
        if (length_ > kChunk) {  // Each row in several portions.
          for (int64_t done = 0; done < length_; done += kChunk) {
            const int64_t run = std::min(kChunk, length_ - done);
            add({begin + done, run, 0}, run);
          }
        } else {
          add({begin, length_, stride_}, length_ * std::min(together, count_ - row));
        }
      }
    }
    return portions;
  }

  // Copies the block out of a layer's whole weight.
  void copy(std::span<const float> layer, std::span<float> block) const {
    auto to = block.begin();
    for (const int64_t group : groups_)
      for (int64_t row = 0; row < count_; ++row)
        to = std::copy_n(layer.begin() + group + row * stride_, length_, to);
  }

 private:
  int64_t start_ = 0, length_ = 1, stride_ = 0, count_ = 1;
  std::vector<int64_t> groups_;  // Starts of the groups.
};

}  // namespace

std::optional<FanAxes> matrix_axes(const Parameter& parameter) {
  const FanAxes& fans = parameter.fans;
  const std::vector<Axis> axes = layer_axes(parameter);
  if (!are_declared(fans)) {
    if (axes.size() < 2 || parameter.init.kind == InitKind::kConstant) return std::nullopt;
    return FanAxes{{axes[axes.size() - 2].name}, {axes.back().name}};
  }
  if (fans.in.empty() || fans.out.empty()) return std::nullopt;
  return FanAxes{fans.in, fans.out};
}

WidthRatios width_ratios(const Parameter& parameter) {
  FanAxes axes = parameter.fans;
  if (axes.in.empty() && axes.out.empty()) axes = matrix_axes(parameter).value_or(FanAxes{});
  WidthRatios ratios;
  bool is_input = true, is_output = true;
  for (const auto& [axis, ratio] : parameter.widths) {
    if (std::ranges::find(axes.in, axis) != axes.in.end()) {
      ratios.in *= ratio;
      is_input = false;
    } else if (axes.out.empty() || std::ranges::find(axes.out, axis) != axes.out.end()) {
      ratios.out *= ratio;
      is_output = false;
    }
  }
  if (!is_input) ratios.initial = is_output ? 1.0 / ratios.in : 1.0 / std::sqrt(ratios.in);
  return ratios;
}

Parameter in_base_model(Parameter parameter) {
  for (Axis& axis : parameter.type.axes)
    if (const auto width = parameter.widths.find(axis.name); width != parameter.widths.end())
      axis.size =
          std::max<int64_t>(1, std::llround(static_cast<double>(axis.size) / width->second));
  return parameter;
}

std::map<std::string, double> relative_widths(const ParameterTable& table,
                                              const std::map<std::string, int64_t>& base) {
  std::map<std::string, double> widths;
  std::vector<std::string> names;
  for (const Parameter& parameter : table.parameters())
    for (const Axis& axis : parameter.type.axes) {
      if (parameter.is_frozen || (axis.name == kLayersAxis && parameter.stack > 0)) continue;
      if (std::ranges::find(names, axis.name) == names.end()) names.push_back(axis.name);
      if (const auto size = base.find(axis.name); size != base.end())
        widths[axis.name] = std::max(
            widths[axis.name], static_cast<double>(axis.size) / static_cast<double>(size->second));
    }
  for (const auto& [axis, size] : base)
    if (!widths.contains(axis))
      fail("mup_base: no weight has an axis '{}'; the model's have {}{}", axis,
           fmt::join(names, ", "), did_you_mean(axis, names));
  return widths;
}

int32_t ParameterTable::add(Parameter parameter) {
  if (find(parameter.path) != nullptr)
    fail("weight '{}' is declared twice; give one of the layers or weights another name",
         parameter.path);
  parameters_.push_back(std::move(parameter));
  return static_cast<int32_t>(parameters_.size()) - 1;
}

const Parameter* ParameterTable::find(std::string_view path) const {
  const auto found =
      std::ranges::find_if(parameters_, [&](const Parameter& each) { return each.path == path; });
  return found == parameters_.end() ? nullptr : &*found;
}

int64_t ParameterTable::elements() const {
  int64_t total = 0;
  for (const Parameter& each : parameters_) total += each.type.elements();
  return total;
}

Type stored_type(const Parameter& parameter, const AxisRules& rules, const Mesh& mesh) {
  if (!parameter.layout.empty()) return {parameter.type.dtype, parameter.layout, {}};
  return apply_rules(overlay_rules(parameter.rules, rules.weights), mesh, parameter.type);
}

Type stored_type(const Parameter& parameter) {
  return stored_type(parameter, traced_rules(), traced_mesh());
}

std::vector<Tensor> parameter_inputs(const ParameterTable& table) {
  check_layer_rules(table);
  std::vector<Tensor> inputs;
  inputs.reserve(table.parameters().size());
  for (const Parameter& each : table.parameters()) {
    const ErrorContext where(each.path);
    inputs.push_back(input(each.path, InputKind::kParameter, stored_type(each)));
  }
  return inputs;
}

void ParameterTable::set_widths(const std::map<std::string, double>& widths) {
  for (Parameter& parameter : parameters_)
    for (const Axis& axis : layer_axes(parameter))
      if (const auto width = widths.find(axis.name); width != widths.end() && !parameter.is_frozen)
        parameter.widths.insert(*width);
}

namespace {

// By the initialiser alone.
Draw standard_draw(const Parameter& parameter) {
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
    case InitKind::kUniformSqrtFanAvg:
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
    case InitKind::kTruncatedGaussianSqrtFanIn:
      return {kTruncatedNormal, scale / std::sqrt(fans.in)};
    case InitKind::kTruncatedGaussianSqrtFanOut:
      return {kTruncatedNormal, scale / std::sqrt(fans.out)};
    case InitKind::kUniformUnitScaling:
      return {kUniform, scale * std::sqrt(3.0 / fans.in)};
    case InitKind::kScaledDeltaOrthogonal:
      // As in Pax, vectors are drawn as normals. Convolution kernels do not occur here.
      if (axes.size() < 2) return {kNormal, scale};
      if (axes.size() == 2) return {kOrthogonal, scale};
      fail("{}: scaled_delta_orthogonal is for matrices, got {}; use xavier or gaussian",
           parameter.path, parameter.type.text_sized());
  }
  CHECK(false, "unknown initialiser");
  return {};
}

}  // namespace

Draw draw_of(const Parameter& parameter) {
  const Parameter base = in_base_model(parameter);
  Draw draw = standard_draw(base);
  if (draw.distribution == Distribution::kConstant) return draw;
  draw.factor *= width_ratios(parameter).initial;
  const auto longest = [](const std::vector<Axis>& axes) {
    return static_cast<double>(std::ranges::max(axes, {}, &Axis::size).size);
  };
  // An orthogonal matrix has smaller elements the longer it is.
  if (draw.distribution == Distribution::kOrthogonal)
    draw.factor *= std::sqrt(longest(layer_axes(parameter)) / longest(layer_axes(base)));
  return draw;
}

void initialize(const Parameter& parameter, uint64_t seed, const Region& block,
                std::span<std::byte> destination, int threads) {
  const Type& type = parameter.type;
  CHECK(block.shape.size() == type.axes.size() && block.origin.size() == type.axes.size(),
        "'{}': the block has another rank", parameter.path);
  int64_t elements = 1;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    CHECK(block.origin[i] >= 0 && block.shape[i] > 0 &&
              block.origin[i] + block.shape[i] <= type.axes[i].size,
          "'{}': the block is outside of {}", parameter.path, type.text_sized());
    elements *= block.shape[i];
  }
  CHECK(std::ssize(destination) == elements * dtype_bytes(type.dtype));
  if (type.dtype != DType::kF32 && type.dtype != DType::kBF16)
    fail("{}: weights are f32 or bf16, got {}", parameter.path, dtype_name(type.dtype));
  const Draw draw = draw_of(parameter);
  const bool stacked = parameter.stack > 0;
  const int64_t first_layer = stacked ? block.origin[0] : parameter.layer;
  const int64_t layers = stacked ? block.shape[0] : 1;
  const BlockRows rows(layer_axes(parameter), block, stacked ? 1 : 0);
  const int64_t layer_elements = elements / layers;
  const bool whole_matrix = draw.distribution == Distribution::kOrthogonal;
  const std::vector<Portion> portions =
      whole_matrix ? std::vector<Portion>{{0, layer_elements, {}}} : rows.portions();
  const int64_t count = std::ssize(portions);
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  parallel_for(layers * count, threads, [&](int64_t i) {
    const int64_t layer = i / count;
    const Portion& portion = portions[static_cast<size_t>(i % count)];
    const uint64_t key = random_key(seed, parameter.random_path, first_layer + layer);
    std::vector<float> values(static_cast<size_t>(portion.elements));
    if (whole_matrix) {
      std::vector<float> matrix(
          static_cast<size_t>(type.elements() / std::max<int64_t>(parameter.stack, 1)));
      draw_orthogonal(draw.factor, key, layer_axes(parameter), matrix);
      rows.copy(matrix, values);
    } else {
      draw_rows(draw, key, portion.rows, values);
    }
    store(values, type.dtype,
          destination.data() + (layer * layer_elements + portion.offset) * dtype_bytes(type.dtype));
  });
}

}  // namespace tessera
