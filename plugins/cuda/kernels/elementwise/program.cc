// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/elementwise/program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/region.h"
#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/elementwise/element_code.h"

namespace tessera::cuda {
namespace {

Lane lane_of(DType dtype) { return tessera::lane_of(dtype, "CUDA"); }

std::string_view lane_type(Lane lane) {
  return lane == Lane::kFloat ? "float" : lane == Lane::kInt ? "int" : "bool";
}

// The type of an element in memory, after the prelude.
std::string_view memory_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "int";
    default:
      return "truth";
  }
}

std::string literal(double value, DType dtype) {
  if (lane_of(dtype) == Lane::kTruth) return value != 0.0 ? "true" : "false";
  if (lane_of(dtype) == Lane::kInt) return fmt::format("{}", static_cast<int32_t>(value));
  auto narrow = static_cast<float>(value);
  if (dtype == DType::kBF16) narrow = static_cast<float>(BFloat16(narrow));
  if (std::isfinite(narrow)) return fmt::format("{:#.9g}f", narrow);  // Exact.
  return fmt::format("__int_as_float({:#010x})", std::bit_cast<uint32_t>(narrow));
}

// A variable that differs from element to element without being computed: an input, or a
// coordinate, which is `origin` plus the position after the strides.
struct Source {
  bool coordinate = false;
  int64_t origin = 0;
  OperandLayout layout;
  Lane lane() const { return coordinate ? Lane::kInt : lane_of(layout.dtype); }
};

// Nodes as statements on one element. Source k is the variable s<k>, statement n makes v<n>.
struct LoopBody {
  std::vector<Axis> axes;  // Axes of the loop.
  std::vector<Source> sources;
  std::vector<std::string> statements;
  std::vector<OperandLayout> results;
  std::vector<std::string> result_names;
};

class BodyBuilder {
 public:
  explicit BodyBuilder(std::vector<Axis> axes) : body_{.axes = std::move(axes)} {}

  // Values of the graph: operands, nodes and results of the loop, in order.
  void add_input(const Graph& graph, ValueId value, size_t operand);
  void add_node(const Graph& graph, const Node& node);
  void add_result(const Graph& graph, ValueId value, size_t operand);
  LoopBody finish() && { return std::move(body_); }

 private:
  std::string expression(const Graph& graph, const Node& node);
  std::string coordinate(const Node& node, const Type& type, int64_t axis);
  static std::string cast_expression(const std::string& x, DType source, DType target);
  std::string add_statement(Lane lane, std::string_view text);
  std::string call(const Graph& graph, const Node& node);
  std::string add_source(Source source);
  // The name of an operand: a bf16 value is a float, and rounded before the first node reads it, as
  // it would be in memory. The store of a result rounds by itself.
  const std::string& of(ValueId value) {
    std::string& name = names_.at(value);
    if (unrounded_.erase(value) > 0)
      name = add_statement(Lane::kFloat, fmt::format("rounded({})", name));
    return name;
  }

  LoopBody body_;
  std::map<ValueId, std::string> names_;
  std::set<ValueId> unrounded_;  // Values that may have more digits than bf16.
};

std::string BodyBuilder::add_source(Source source) {
  for (size_t k = 0; k < body_.sources.size(); ++k) {
    const Source& other = body_.sources[k];
    if (source.coordinate && other.coordinate && other.origin == source.origin &&
        other.layout.strides == source.layout.strides)
      return fmt::format("s{}", k);
  }
  body_.sources.push_back(std::move(source));
  return fmt::format("s{}", body_.sources.size() - 1);
}

void BodyBuilder::add_input(const Graph& graph, ValueId value, size_t operand) {
  if (names_.contains(value)) return;
  const Type& type = graph.type(value);
  lane_of(type.dtype);  // An Error for dtypes without lanes.
  names_[value] = add_source({.layout = {operand, type.dtype, strides_in(type, body_.axes)}});
}

void BodyBuilder::add_result(const Graph& graph, ValueId value, size_t operand) {
  const Type& type = graph.type(value);
  CHECK(type.axes.size() == body_.axes.size(), "results of one loop have the same axes");
  body_.results.push_back({operand, type.dtype, strides_in(type, body_.axes)});
  body_.result_names.push_back(names_.at(value));
}

void BodyBuilder::add_node(const Graph& graph, const Node& node) {
  const ValueId value = node.outputs[0];
  names_[value] = add_statement(lane_of(graph.type(value).dtype), expression(graph, node));
  if (needs_rounding(graph, node)) unrounded_.insert(value);
}

std::string BodyBuilder::add_statement(Lane lane, std::string_view text) {
  std::string name = fmt::format("v{}", body_.statements.size());
  body_.statements.push_back(fmt::format("const {} {} = {};", lane_type(lane), name, text));
  return name;
}

// The global position along an axis of a generator's result.
std::string BodyBuilder::coordinate(const Node& node, const Type& type, int64_t axis) {
  const std::string& name = type.axes[static_cast<size_t>(axis)].name;
  Source source{.coordinate = true, .origin = origin_along(node.attributes, axis)};
  for (const Axis& each : body_.axes) source.layout.strides.push_back(each.name == name);
  return add_source(std::move(source));
}

std::string BodyBuilder::expression(const Graph& graph, const Node& node) {
  const OpDef* const op = node.op;
  const Type& type = graph.type(node.outputs[0]);
  if (op == &kConstantOp) return literal(node.attributes.get(key::kValue), type.dtype);
  if (op == &kIotaOp) return coordinate(node, type, 0);
  if (op == &kCausalMaskOp) {
    const std::string query = coordinate(node, type, 0), key = coordinate(node, type, 1);
    return fmt::format("{} <= {}", key, query);
  }
  if (op == &kOneHotOp) {
    const std::string position = coordinate(node, type, type.rank() - 1);
    return fmt::format("({})({} == {})", lane_type(lane_of(type.dtype)), of(node.inputs[0]),
                       position);
  }
  if (op == &kBroadcastOp) return of(node.inputs[0]);
  if (op == &kCastOp)
    return cast_expression(of(node.inputs[0]), graph.type(node.inputs[0]).dtype, type.dtype);
  if (op == &kScaleOp)
    return fmt::format("{} * {}", of(node.inputs[0]),
                       literal(node.attributes.get(key::kFactor), DType::kF32));
  return call(graph, node);
}

std::string BodyBuilder::cast_expression(const std::string& x, DType source, DType target) {
  const Lane want = lane_of(target);
  if (want == Lane::kTruth) return fmt::format("{} != 0", x);
  if (lane_of(source) == want) return x;
  return want == Lane::kInt && lane_of(source) == Lane::kFloat
             ? fmt::format("__float2int_rz({})", x)
             : fmt::format("({}){}", lane_type(want), x);
}

std::string BodyBuilder::call(const Graph& graph, const Node& node) {
  const ElementCode* const code = element_code(*node.op);
  const Lane lane = lane_of(operand_dtype(graph, node));
  const std::string_view text = code == nullptr        ? ""
                                : lane == Lane::kInt   ? code->ints
                                : lane == Lane::kTruth ? code->truths
                                                       : code->floats;
  if (text.empty())
    fail("{}: the CUDA backend has no {} for {}; write it with other ops or use --device=cpu",
         node.site.text(), node.op->name, dtype_name(graph.type(node.inputs[0]).dtype));
  const auto operand = [&](size_t i) { return i < node.inputs.size() ? of(node.inputs[i]) : ""; };
  return fmt::format(fmt::runtime(text), operand(0), operand(1), operand(2));
}

// The text of the loop around a body.
class LoopText {
 public:
  explicit LoopText(LoopBody body);
  ElementwiseProgram finish(std::string name) &&;

 private:
  void collapse_space();
  void choose_width();
  void add(int depth, std::string_view line) {
    text_ += fmt::format("{:{}}{}\n", "", 2 * depth, line);
  }
  std::string declaration(Lane lane, std::string_view name, std::string_view value) const {
    return fmt::format("const {} {} = {};", lane_type(lane), name, value);
  }
  bool linear(const Strides& strides) const;
  std::string offset(const Strides& strides) const;
  std::string parameters() const;
  void add_position();
  void add_loads();
  void add_statements();
  void add_stores();

  LoopBody body_;
  std::vector<int64_t> sizes_;
  int64_t width_ = 1;  // Elements a thread computes at a time.
  int64_t items_ = 1;
  std::string_view index_;  // The type of positions.
  std::string text_;
};

int64_t inner(const Strides& strides) { return strides.empty() ? 0 : strides.back(); }
bool everywhere_same(const Strides& strides) {
  return std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
}

LoopText::LoopText(LoopBody body) : body_(std::move(body)) {
  collapse_space();
  choose_width();
  // Rows are whole numbers of items, unless the space is one row, whose last item may be shorter.
  const int64_t elements = element_count(sizes_);
  items_ = (elements + width_ - 1) / width_;
  index_ = elements < int64_t{1} << 31 ? "u32" : "u64";
}

void LoopText::collapse_space() {
  std::vector<Strides> strides;
  for (const Source& source : body_.sources) strides.push_back(source.layout.strides);
  for (const OperandLayout& result : body_.results) strides.push_back(result.strides);
  IterationSpace space = collapse(sizes_of(body_.axes), std::move(strides));
  sizes_ = std::move(space.sizes);
  size_t next = 0;
  for (Source& source : body_.sources) source.layout.strides = std::move(space.operands[next++]);
  for (OperandLayout& result : body_.results) result.strides = std::move(space.operands[next++]);
}

// 16 bytes of the narrowest operand, if the registers hold so many elements of each operand.
void LoopText::choose_width() {
  constexpr int64_t kMostLanes = 64;
  if (sizes_.empty()) return;
  int64_t bytes = 4, arrays = 0;
  const auto note = [&](const OperandLayout& layout) {
    if (inner(layout.strides) != 1) return;
    // Truth values are few bytes beside the others: they do not ask for 16 elements.
    bytes = std::min(bytes, std::max<int64_t>(dtype_bytes(layout.dtype), 2));
    ++arrays;
  };
  for (const Source& source : body_.sources)
    if (!source.coordinate) note(source.layout);
  for (const OperandLayout& result : body_.results) note(result);
  width_ = 16 / bytes;
  while (width_ > 4 && width_ * arrays > kMostLanes) width_ /= 2;
  while (sizes_.size() > 1 && sizes_.back() % width_ != 0) width_ /= 2;
}

// Whether the elements are contiguous, in the order of the loop.
bool LoopText::linear(const Strides& strides) const {
  int64_t stride = 1;
  for (size_t d = sizes_.size(); d-- > 0; stride *= sizes_[d])
    if (strides[d] != stride) return false;
  return !sizes_.empty();
}

// The offset of the first element of an item.
std::string LoopText::offset(const Strides& strides) const {
  if (linear(strides)) return "base";
  std::vector<std::string> terms;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (strides[d] == 1) terms.push_back(fmt::format("p{}", d));
    if (strides[d] > 1) terms.push_back(fmt::format("p{} * {}", d, strides[d]));
  }
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

std::string LoopText::parameters() const {
  std::vector<std::string> names;
  for (size_t k = 0; k < body_.sources.size(); ++k)
    if (const Source& source = body_.sources[k]; !source.coordinate)
      names.push_back(fmt::format("const {}* in{}", memory_type(source.layout.dtype), k));
  for (size_t r = 0; r < body_.results.size(); ++r)
    names.push_back(fmt::format("{}* out{}", memory_type(body_.results[r].dtype), r));
  return fmt::format("{}", fmt::join(names, ", "));
}

// p<d>: the position along each dimension that an offset needs. The sizes are constants, so that
// the compiler turns the divisions into products.
void LoopText::add_position() {
  const auto declare = [&](std::string_view name, std::string_view value) {
    add(2, fmt::format("const {} {} = {};", index_, name, value));
  };
  const auto needed = [&](size_t d) {
    return std::any_of(body_.sources.begin(), body_.sources.end(), [&](const Source& source) {
      return source.layout.strides[d] != 0 && !linear(source.layout.strides);
    });
  };
  if (!sizes_.empty()) declare("base", width_ == 1 ? "item" : fmt::format("item * {}", width_));
  size_t outermost = 0;
  while (outermost < sizes_.size() && !needed(outermost)) ++outermost;
  std::string rest = "base";
  for (size_t d = sizes_.size(); d-- > outermost;) {
    if (needed(d))
      declare(fmt::format("p{}", d), d == 0 ? rest : fmt::format("{} % {}", rest, sizes_[d]));
    if (d == outermost) break;
    declare(fmt::format("r{}", d), fmt::format("{} / {}", rest, sizes_[d]));
    rest = fmt::format("r{}", d);
  }
  const bool short_end = sizes_.size() == 1 && sizes_[0] % width_ != 0;
  add(2, short_end ? fmt::format("const int count = base + {0} <= {1} ? {0} : (int)({1} - base);",
                                 width_, sizes_[0])
                   : fmt::format("const int count = {};", width_));
}

// x<k>: the values of source k in this item, an array if they differ.
void LoopText::add_loads() {
  for (size_t k = 0; k < body_.sources.size(); ++k) {
    const Source& source = body_.sources[k];
    const Strides& strides = source.layout.strides;
    const std::string name = fmt::format("x{}", k);
    if (source.coordinate) {
      add(2, fmt::format("const int {} = (int)({} + {});", name, source.origin, offset(strides)));
    } else if (everywhere_same(strides)) {
      continue;  // Before the loop.
    } else if (inner(strides) == 0) {
      add(2,
          declaration(source.lane(), name, fmt::format("value_of(in{}[{}])", k, offset(strides))));
    } else {
      add(2, fmt::format("{} {}[{}];", lane_type(source.lane()), name, width_));
      add(2,
          fmt::format("load(&in{}[{}], count, {}, {});", k, offset(strides), inner(strides), name));
    }
  }
}

void LoopText::add_statements() {
  for (size_t r = 0; r < body_.results.size(); ++r)
    add(2, fmt::format("{} y{}[{}];", lane_type(lane_of(body_.results[r].dtype)), r, width_));
  text_ += "#pragma unroll\n";
  add(2, fmt::format("for (int i = 0; i < {}; ++i) {{", width_));
  for (size_t k = 0; k < body_.sources.size(); ++k) {
    const Source& source = body_.sources[k];
    const int64_t stride = inner(source.layout.strides);
    std::string value = fmt::format("x{}", k);
    if (source.coordinate) {
      value += fmt::format(" + i * {}", stride);
    } else if (stride != 0) {
      value += "[i]";
    }
    add(3, declaration(source.lane(), fmt::format("s{}", k), value));
  }
  for (const std::string& statement : body_.statements) add(3, statement);
  for (size_t r = 0; r < body_.results.size(); ++r)
    add(3, fmt::format("y{}[i] = {};", r, body_.result_names[r]));
  add(2, "}");
}

void LoopText::add_stores() {
  for (size_t r = 0; r < body_.results.size(); ++r) {
    const Strides& strides = body_.results[r].strides;
    CHECK(sizes_.empty() || linear(strides), "results have the order of the loop");
    add(2, fmt::format("store(&out{}[{}], count, y{});", r, offset(strides), r));
  }
}

ElementwiseProgram LoopText::finish(std::string name) && {
  text_ = kElementPrelude;
  add(0, "\nextern \"C\" __global__ void __launch_bounds__(256)");
  add(0, fmt::format("{}({}) {{", name, parameters()));
  add(1, fmt::format("const {0} first = blockIdx.x * ({0})blockDim.x + threadIdx.x;", index_));
  // Before scalars are read: the one result of a scalar program may lie in an operand's memory.
  add(1, fmt::format("if (first >= {}) return;", items_));
  for (size_t k = 0; k < body_.sources.size(); ++k)
    if (const Source& source = body_.sources[k];
        !source.coordinate && everywhere_same(source.layout.strides))
      add(1, declaration(source.lane(), fmt::format("x{}", k), fmt::format("value_of(*in{})", k)));
  add(1, fmt::format("for ({0} item = first; item < {1}; item += gridDim.x * ({0})blockDim.x) {{",
                     index_, items_));
  add_position();
  add_loads();
  add_statements();
  add_stores();
  add(1, "}");
  add(0, "}");
  ElementwiseProgram program{
      std::move(name), std::move(text_), {}, std::move(body_.results), items_};
  for (Source& source : body_.sources)
    if (!source.coordinate) program.inputs.push_back(std::move(source.layout));
  return program;
}

// "exp_f32", "fused_mul_add_bf16": the ops that compute, and the dtype of the first result.
std::string program_name(const Graph& graph, const Node& node) {
  constexpr size_t kLongest = 60;
  std::string name(node.op->name);
  if (!node.bodies.empty())
    for (const Node& inner : node.bodies[0]->nodes())
      if (element_code(*inner.op) != nullptr && name.size() + inner.op->name.size() < kLongest)
        name += fmt::format("_{}", inner.op->name);
  return fmt::format("{}_{}", name, dtype_name(graph.type(node.outputs[0]).dtype));
}

}  // namespace

bool has_program(const OpDef& op) {
  static const OpDef* const kOthers[] = {&kFusedOp,  &kConstantOp,  &kIotaOp, &kCausalMaskOp,
                                         &kOneHotOp, &kBroadcastOp, &kCastOp, &kScaleOp};
  return element_code(op) != nullptr ||
         std::find(std::begin(kOthers), std::end(kOthers), &op) != std::end(kOthers);
}

ElementwiseProgram make_program(const Graph& graph, const Node& node) {
  BodyBuilder builder(graph.type(node.outputs[0]).axes);
  const bool fused = !node.bodies.empty();
  if (fused) {
    const Graph& inside = *node.bodies[0];
    for (size_t i = 0; i < inside.inputs().size(); ++i)
      builder.add_input(inside, inside.inputs()[i].value, i);
    for (const Node& each : inside.nodes()) builder.add_node(inside, each);
    for (size_t i = 0; i < inside.outputs().size(); ++i)
      builder.add_result(inside, inside.outputs()[i].value, i);
  } else {
    for (size_t i = 0; i < node.inputs.size(); ++i) builder.add_input(graph, node.inputs[i], i);
    builder.add_node(graph, node);
    builder.add_result(graph, node.outputs[0], 0);
  }
  return LoopText(std::move(builder).finish()).finish(program_name(graph, node));
}

}  // namespace tessera::cuda
