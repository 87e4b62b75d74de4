// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/elementwise/elementwise_program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <string>

#include "core/backend/cpu/shard_index_map.h"
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/cast.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

// What the lanes of a value are.
enum class Lane { kFloat, kInt, kTruth };

Lane lane_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
      return Lane::kFloat;
    case DType::kI32:
      return Lane::kInt;
    case DType::kBool:
      return Lane::kTruth;
    case DType::kU32:
    case DType::kF64:
      break;
  }
  fail("the CPU backend computes in f32, bf16, i32 and bool, not in {}; cast it",
       dtype_name(dtype));
}

struct CodeRow {
  std::string_view op;
  Opcode code;                    // On floats.
  std::optional<Opcode> integer;  // On integers.
  std::optional<Opcode> truth;    // On truth values.
  double cost = 1.0;
};

using enum Opcode;

// Ops that are one instruction. `scale`, `cast` and generators are below.
constexpr CodeRow kCodes[] = {
    {"neg", kNeg, kNegInt, {}},
    {"exp", kExp, {}, {}, 12},
    {"log", kLog, {}, {}, 15},
    {"sqrt", kSqrt, {}, {}, 6},
    {"rsqrt", kRsqrt, {}, {}, 10},
    {"abs", kAbs, kAbsInt, {}},
    {"sign", kSign, kSignInt, {}},
    {"sin", kSin, {}, {}, 20},
    {"cos", kCos, {}, {}, 20},
    {"erf", kErf, {}, {}, 20},
    {"tanh", kTanh, {}, {}, 18},
    {"sigmoid", kSigmoid, {}, {}, 18},
    {"relu", kRelu, {}, {}},
    {"softplus", kSoftplus, {}, {}, 30},
    {"silu", kSilu, {}, {}, 18},
    {"gelu", kGelu, {}, {}, 25},
    {"gelu_tanh", kGeluTanh, {}, {}, 22},
    {"add", kAdd, kAddInt, {}},
    {"sub", kSub, kSubInt, {}},
    {"mul", kMul, kMulInt, {}},
    {"div", kDiv, {}, {}, 4},
    {"pow", kPow, {}, {}, 200},
    {"maximum", kMaximum, kMaximumInt, {}},
    {"minimum", kMinimum, kMinimumInt, {}},
    {"tanh_grad", kTanhGrad, {}, {}},
    {"sigmoid_grad", kSigmoidGrad, {}, {}},
    {"relu_grad", kReluGrad, {}, {}},
    {"silu_grad", kSiluGrad, {}, {}, 20},
    {"gelu_grad", kGeluGrad, {}, {}, 35},
    {"gelu_tanh_grad", kGeluTanhGrad, {}, {}, 28},
    {"equal", kEqual, kEqualInt, kEqual},
    {"less", kLess, kLessInt, {}},
    {"less_equal", kLessEqual, kLessEqualInt, {}},
    {"logical_and", kAnd, {}, kAnd},
    {"logical_or", kOr, {}, kOr},
    {"logical_not", kNot, {}, kNot},
    {"is_finite", kIsFinite, {}, {}},
    {"where", kSelect, kSelectInt, kSelect},
    {"mask", kMask, kMaskInt, kMask},
};

constexpr std::string_view kOthers[] = {"square",        "scale",    "cast",
                                        "stop_gradient", "constant", "iota",
                                        "causal_mask",   "one_hot",  "broadcast"};

const CodeRow* find_code(std::string_view op) {
  for (const CodeRow& row : kCodes) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

constexpr int32_t kNoSlot = -1;

class Compiler {
 public:
  TileProgram compile(const Graph& graph, const Node& node);

 private:
  void add_node(const Graph& graph, const Node& node);
  void add_cast(int32_t from, DType source, const Node& node, DType target);
  int32_t source(TileSource source);
  int32_t constant(uint32_t bits);
  int32_t coordinate(const Node& node, const Type& type, int64_t axis);
  // An instruction of fewer operands repeats the first.
  int32_t emit(Opcode code, int32_t a, int32_t b = kNoSlot, int32_t c = kNoSlot);
  int32_t of(ValueId id) const { return values_.at(id); }
  void finish(const Graph& graph, const std::vector<ValueId>& outputs);
  void place_slots();
  void collapse_space();

  std::vector<Axis> axes_;
  TileProgram program_;
  std::map<ValueId, int32_t> values_;  // Slots, one for each value until place_slots.
};

int32_t Compiler::source(TileSource source) {
  for (const TileSource& other : program_.sources) {
    if (other.kind == source.kind && other.kind != TileSource::Kind::kInput &&
        other.constant == source.constant && other.strides == source.strides) {
      return other.slot;
    }
  }
  source.slot = program_.slots++;
  program_.sources.push_back(std::move(source));
  return program_.sources.back().slot;
}

int32_t Compiler::constant(uint32_t bits) {
  return source(
      {.kind = TileSource::Kind::kConstant, .constant = bits, .strides = Strides(axes_.size(), 0)});
}

// The global position along an axis of a generator's result.
int32_t Compiler::coordinate(const Node& node, const Type& type, int64_t axis) {
  const std::string& name = type.axes[static_cast<size_t>(axis)].name;
  Strides strides(axes_.size(), 0);
  for (size_t d = 0; d < axes_.size(); ++d) strides[d] = axes_[d].name == name;
  return source({.kind = TileSource::Kind::kCoordinate,
                 .dtype = DType::kI32,
                 .constant = static_cast<uint32_t>(origin_along(node.attributes, axis)),
                 .strides = std::move(strides)});
}

int32_t Compiler::emit(Opcode code, int32_t a, int32_t b, int32_t c) {
  program_.instructions.push_back(
      {code, program_.slots, a, b == kNoSlot ? a : b, c == kNoSlot ? a : c});
  return program_.slots++;
}

void Compiler::add_cast(int32_t from, DType source, const Node& node, DType target) {
  const Lane have = lane_of(source), want = lane_of(target);
  int32_t slot = from;
  if (have == Lane::kInt && want == Lane::kFloat) slot = emit(kIntToFloat, from);
  if (have != Lane::kInt && want == Lane::kInt) slot = emit(kFloatToInt, from);
  if (have == Lane::kFloat && want == Lane::kTruth) slot = emit(kTruth, from);
  if (have == Lane::kInt && want == Lane::kTruth) slot = emit(kTruthInt, from);
  // What is kept in f32 lanes must still have been rounded where the program says so.
  if (target == DType::kBF16 && source != DType::kBF16) slot = emit(kRoundToBF16, slot);
  values_[node.outputs[0]] = slot;
}

uint32_t lane_bits(double value, DType dtype) {
  switch (lane_of(dtype)) {
    case Lane::kInt:
      return std::bit_cast<uint32_t>(static_cast<int32_t>(value));
    case Lane::kTruth:
      return std::bit_cast<uint32_t>(value != 0.0 ? 1.0f : 0.0f);
    case Lane::kFloat:
      break;
  }
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::kBF16) return std::bit_cast<uint32_t>(static_cast<float>(BFloat16(narrow)));
  return std::bit_cast<uint32_t>(narrow);
}

void Compiler::add_node(const Graph& graph, const Node& node) {
  const OpDef* const op = node.op;
  const Type& type = graph.type(node.outputs[0]);
  const ValueId result = node.outputs[0];
  const auto in = [&](size_t i) { return of(node.inputs[i]); };
  if (op == &kConstantOp) {
    values_[result] = constant(lane_bits(node.attributes.get<double>("value"), type.dtype));
  } else if (op == &kIotaOp) {
    values_[result] = coordinate(node, type, 0);
  } else if (op == &kCausalMaskOp) {
    values_[result] = emit(kLessEqualInt, coordinate(node, type, 1), coordinate(node, type, 0));
  } else if (op == &kOneHotOp) {
    const int32_t hit = emit(kEqualInt, in(0), coordinate(node, type, type.rank() - 1));
    values_[result] = lane_of(type.dtype) == Lane::kInt ? emit(kFloatToInt, hit) : hit;
  } else if (op == &kBroadcastOp || op == &kStopGradientOp) {
    values_[result] = in(0);
  } else if (op == &kCastOp) {
    add_cast(in(0), graph.type(node.inputs[0]).dtype, node, type.dtype);
  } else if (op == &kScaleOp) {
    const auto factor = static_cast<float>(node.attributes.get<double>("factor"));
    values_[result] = emit(kMul, in(0), constant(std::bit_cast<uint32_t>(factor)));
    program_.cost += 1.0;
  } else if (op == &find_op("square")) {
    const bool integer = lane_of(type.dtype) == Lane::kInt;
    values_[result] = emit(integer ? kMulInt : kMul, in(0), in(0));
    program_.cost += 1.0;
  } else {
    const CodeRow* row = find_code(op->name);
    if (row == nullptr) fail("the CPU backend cannot fuse op '{}'", op->name);
    // The lanes that decide are those of the operands; of `where`, of what it selects from.
    const Lane lane = lane_of(graph.type(node.inputs[op == &kWhereOp ? 1 : 0]).dtype);
    const std::optional<Opcode> code = lane == Lane::kInt     ? row->integer
                                       : lane == Lane::kTruth ? row->truth
                                                              : std::optional(row->code);
    if (!code) {
      fail("{}: the CPU backend has no {} for {}", node.site.text(), op->name,
           dtype_name(graph.type(node.inputs[0]).dtype));
    }
    const auto operand = [&](size_t i) { return i < node.inputs.size() ? in(i) : kNoSlot; };
    values_[result] = emit(*code, operand(0), operand(1), operand(2));
    program_.cost += row->cost;
  }
}

TileProgram Compiler::compile(const Graph& graph, const Node& node) {
  const bool fused = !node.bodies.empty();
  const Graph& body = fused ? *node.bodies[0] : graph;
  axes_ = graph.type(node.outputs[0]).axes;
  const auto add_input = [&](ValueId value, size_t index) {
    if (values_.contains(value)) return;
    const Type& type = body.type(value);
    lane_of(type.dtype);  // Refuses what has no lanes.
    values_[value] = source({.index = static_cast<int32_t>(index),
                             .dtype = type.dtype,
                             .strides = strides_in(type, axes_)});
  };
  if (fused) {
    for (size_t i = 0; i < body.inputs().size(); ++i) add_input(body.inputs()[i].value, i);
    for (const Node& inner : body.nodes()) add_node(body, inner);
    std::vector<ValueId> outputs;
    for (const GraphOutput& output : body.outputs()) outputs.push_back(output.value);
    finish(body, outputs);
  } else {
    for (size_t i = 0; i < node.inputs.size(); ++i) add_input(node.inputs[i], i);
    add_node(graph, node);
    finish(graph, node.outputs);
  }
  return std::move(program_);
}

void Compiler::finish(const Graph& graph, const std::vector<ValueId>& outputs) {
  for (const ValueId output : outputs) {
    const Type& type = graph.type(output);
    CHECK(type.axes.size() == axes_.size(), "results of one loop have the same axes");
    program_.results.push_back({of(output), type.dtype, strides_in(type, axes_), false});
  }
  const auto count = program_.instructions.size();
  // The last instruction that reads what lies in an input's memory.
  size_t last_read = 0;
  for (size_t i = 0; i < count; ++i) {
    const TileInstruction& code = program_.instructions[i];
    for (const TileSource& input : program_.sources) {
      if (code.a == input.slot || code.b == input.slot || code.c == input.slot) last_read = i;
    }
  }
  for (TileResult& result : program_.results) {
    for (size_t i = last_read; i < count; ++i) {
      result.in_place |= program_.instructions[i].result == result.slot;
    }
  }
  place_slots();
  collapse_space();
}

// Values that are dead make room for later ones. Sources and results keep slots of their own.
void Compiler::place_slots() {
  const auto values = static_cast<size_t>(program_.slots);
  std::vector<size_t> last_use(values, 0);
  std::vector<bool> kept(values, false);
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    const TileInstruction& code = program_.instructions[i];
    for (const int32_t slot : {code.a, code.b, code.c}) last_use[static_cast<size_t>(slot)] = i;
  }
  for (const TileSource& input : program_.sources) kept[static_cast<size_t>(input.slot)] = true;
  for (const TileResult& result : program_.results) kept[static_cast<size_t>(result.slot)] = true;

  std::vector<int32_t> place(values, -1), spare;
  int32_t slots = 0;
  for (size_t v = 0; v < values; ++v) {
    if (kept[v]) place[v] = slots++;
  }
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    TileInstruction& code = program_.instructions[i];
    const std::array<int32_t, 3> operands = {code.a, code.b, code.c};
    for (size_t o = 0; o < 3; ++o) {
      const auto v = static_cast<size_t>(operands[o]);
      const bool first = std::find(operands.begin(), operands.begin() + o, operands[o]) ==
                         operands.begin() + static_cast<std::ptrdiff_t>(o);
      if (first && !kept[v] && last_use[v] == i && place[v] >= 0) spare.push_back(place[v]);
    }
    const auto result = static_cast<size_t>(code.result);
    code.a = place[static_cast<size_t>(code.a)];
    code.b = place[static_cast<size_t>(code.b)];
    code.c = place[static_cast<size_t>(code.c)];
    if (place[result] < 0) {
      if (spare.empty()) {
        place[result] = slots++;
      } else {
        place[result] = spare.back();
        spare.pop_back();
      }
    }
    code.result = place[result];
  }
  for (TileSource& input : program_.sources) {
    input.slot = place[static_cast<size_t>(input.slot)];
  }
  for (TileResult& result : program_.results) {
    result.slot = place[static_cast<size_t>(result.slot)];
  }
  program_.slots = slots;
}

void Compiler::collapse_space() {
  std::vector<int64_t> sizes;
  for (const Axis& axis : axes_) sizes.push_back(axis.size);
  std::vector<Strides> strides;
  for (const TileSource& input : program_.sources) strides.push_back(input.strides);
  for (const TileResult& result : program_.results) strides.push_back(result.strides);
  IterationSpace space = collapse(std::move(sizes), std::move(strides));
  program_.sizes = std::move(space.sizes);
  size_t next = 0;
  for (TileSource& input : program_.sources) input.strides = std::move(space.operands[next++]);
  for (TileResult& result : program_.results) result.strides = std::move(space.operands[next++]);
}

}  // namespace

int64_t TileProgram::elements() const {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

bool is_tile_op(std::string_view op) {
  const std::vector<std::string_view> ops = tile_ops();
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

std::vector<std::string_view> tile_ops() {
  std::vector<std::string_view> ops(std::begin(kOthers), std::end(kOthers));
  for (const CodeRow& row : kCodes) ops.push_back(row.op);
  return ops;
}

TileProgram compile_tiles(const Graph& graph, const Node& node) {
  return Compiler().compile(graph, node);
}

}  // namespace tessera
