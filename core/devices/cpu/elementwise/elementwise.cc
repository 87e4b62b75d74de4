// SPDX-License-Identifier: Apache-2.0
// The kernel of elementwise ops, foldable generators and fused nodes: compiles the node to a tile
// program and runs its tiles on the thread pool.
#include "core/ops/elementwise.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/devices/cpu/elementwise/tile_program.h"
#include "core/devices/cpu/registry.h"
#include "core/graph/op.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

Lane lane_of(DType dtype) { return tessera::lane_of(dtype, "CPU"); }

constexpr int32_t kNoSlot = -1;

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

class Compiler {
 public:
  TileProgram compile(const Graph& graph, const Node& node) {
    const bool fused = !node.bodies.empty();
    const Graph& body = fused ? *node.bodies[0] : graph;
    axes_ = graph.type(node.outputs[0]).axes;
    const auto add_input = [&](ValueId value, size_t index) {
      if (values_.contains(value)) return;
      const Type& type = body.type(value);
      lane_of(type.dtype);  // An Error for dtypes without lanes.
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

 private:
  void add_node(const Graph& graph, const Node& node) {
    const OpDef* const op = node.op;
    const Type& type = graph.type(node.outputs[0]);
    int32_t& result = values_[node.outputs[0]];
    if (op == &kConstantOp) {
      result = constant(lane_bits(node.attributes.get(key::kValue), type.dtype));
    } else if (op == &kIotaOp) {
      result = coordinate(node, type, 0);
    } else if (op == &kCausalMaskOp) {
      const int32_t query = coordinate(node, type, 0), key = coordinate(node, type, 1);
      result = emit(&kLessEqualOp, lane_loops(kLessEqualOp).integers, key, query);
    } else if (op == &kOneHotOp) {
      const int32_t position = coordinate(node, type, type.rank() - 1);
      result = emit(&kEqualOp, lane_loops(kEqualOp).integers, of(node.inputs[0]), position);
      if (lane_of(type.dtype) == Lane::kInt) result = convert(Conversion::kFloatToInt, result);
    } else if (op == &kBroadcastOp || op == &kStopGradientOp) {
      result = of(node.inputs[0]);
    } else if (op == &kCastOp) {
      result = add_cast(of(node.inputs[0]), graph.type(node.inputs[0]).dtype, type.dtype);
    } else if (op == &kScaleOp) {
      const auto factor = static_cast<float>(node.attributes.get(key::kFactor));
      result = emit(&kMulOp, lane_loops(kMulOp).floats, of(node.inputs[0]),
                    constant(std::bit_cast<uint32_t>(factor)));
      program_.cost += 1.0;
    } else {
      result = add_function(graph, node);
    }
    if (needs_rounding(graph, node)) unrounded_.insert(node.outputs[0]);
  }

  int32_t add_function(const Graph& graph, const Node& node) {
    const LaneLoops loops = lane_loops(*node.op);
    const Lane lane = lane_of(operand_dtype(graph, node));
    const LaneLoop loop = lane == Lane::kInt     ? loops.integers
                          : lane == Lane::kTruth ? loops.truths
                                                 : loops.floats;
    if (loop == nullptr)
      fail("{}: the CPU backend has no {} for {}", node.site.text(), node.op->name,
           dtype_name(graph.type(node.inputs[0]).dtype));
    program_.cost += node.op->element.cost;
    const auto operand = [&](size_t i) {
      return i < node.inputs.size() ? of(node.inputs[i]) : kNoSlot;
    };
    return emit(node.op, loop, operand(0), operand(1), operand(2));
  }

  int32_t add_cast(int32_t from, DType source, DType target) {
    const Lane have = lane_of(source), next = lane_of(target);
    int32_t slot = from;
    if (have == Lane::kInt && next == Lane::kFloat) slot = convert(Conversion::kIntToFloat, from);
    if (have != Lane::kInt && next == Lane::kInt) slot = convert(Conversion::kFloatToInt, from);
    if (have != next && next == Lane::kTruth)
      slot =
          convert(have == Lane::kInt ? Conversion::kIntToTruth : Conversion::kFloatToTruth, from);
    return slot;
  }

  int32_t source(TileSource source) {
    for (const TileSource& other : program_.sources)
      if (other.kind == source.kind && other.kind != TileSource::Kind::kInput &&
          other.constant == source.constant && other.strides == source.strides)
        return other.slot;
    source.slot = program_.slots++;
    program_.sources.push_back(std::move(source));
    return program_.sources.back().slot;
  }

  int32_t constant(uint32_t bits) {
    return source({.kind = TileSource::Kind::kConstant,
                   .constant = bits,
                   .strides = Strides(axes_.size(), 0)});
  }

  // Returns the slot of the global position along an axis of a generator's result.
  int32_t coordinate(const Node& node, const Type& type, int64_t axis) {
    const std::string& name = type.axes[static_cast<size_t>(axis)].name;
    Strides strides(axes_.size(), 0);
    for (size_t d = 0; d < axes_.size(); ++d) strides[d] = axes_[d].name == name;
    return source({.kind = TileSource::Kind::kCoordinate,
                   .dtype = DType::kI32,
                   .constant = static_cast<uint32_t>(origin_along(node.attributes, axis)),
                   .strides = std::move(strides)});
  }

  // Emits an instruction and returns its result's slot; missing operands repeat the first.
  int32_t emit(const OpDef* op, LaneLoop loop, int32_t a, int32_t b = kNoSlot,
               int32_t c = kNoSlot) {
    program_.instructions.push_back(
        {loop, op, program_.slots, a, b == kNoSlot ? a : b, c == kNoSlot ? a : c});
    return program_.slots++;
  }

  int32_t convert(Conversion conversion, int32_t a) {
    return emit(nullptr, conversion_loop(conversion), a);
  }

  // Returns the slot of an operand. The lanes of a bf16 value are 32-bit floats: they are rounded
  // before the first node reads them, as they would be in memory. The store of a result rounds too.
  int32_t of(ValueId id) {
    int32_t& slot = values_.at(id);
    if (unrounded_.erase(id) > 0) slot = convert(Conversion::kRoundToBF16, slot);
    return slot;
  }

  void finish(const Graph& graph, const std::vector<ValueId>& outputs) {
    for (const ValueId output : outputs) {
      const Type& type = graph.type(output);
      CHECK(type.axes.size() == axes_.size(), "results of one loop have the same axes");
      program_.results.push_back({values_.at(output), type.dtype, strides_in(type, axes_), false});
    }
    const auto count = program_.instructions.size();
    // The last instruction that reads an input.
    size_t last_read = 0;
    for (size_t i = 0; i < count; ++i) {
      const TileInstruction& code = program_.instructions[i];
      for (const TileSource& input : program_.sources)
        if (code.a == input.slot || code.b == input.slot || code.c == input.slot) last_read = i;
    }
    for (TileResult& result : program_.results)
      for (size_t i = last_read; i < count; ++i)
        result.in_place |= program_.instructions[i].result == result.slot;
    place_slots();
    collapse_space();
  }

  // Reuses the slots of dead values. Sources and results keep slots of their own.
  void place_slots() {
    constexpr size_t kAlways = std::numeric_limits<size_t>::max();
    const auto at = [](auto& list, int32_t slot) -> auto& {
      return list[static_cast<size_t>(slot)];
    };
    std::vector<size_t> last_use(static_cast<size_t>(program_.slots), 0);
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const TileInstruction& code = program_.instructions[i];
      for (const int32_t slot : {code.a, code.b, code.c}) at(last_use, slot) = i;
    }
    for (const TileSource& input : program_.sources) at(last_use, input.slot) = kAlways;
    for (const TileResult& result : program_.results) at(last_use, result.slot) = kAlways;

    std::vector<int32_t> place(last_use.size(), kNoSlot), spare;
    int32_t slots = 0;
    for (size_t v = 0; v < place.size(); ++v)
      if (last_use[v] == kAlways) place[v] = slots++;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      TileInstruction& code = program_.instructions[i];
      for (int32_t* const operand : {&code.a, &code.b, &code.c}) {
        if (at(last_use, *operand) == i) {
          spare.push_back(at(place, *operand));
          at(last_use, *operand) = kAlways;  // Once, for equal operands.
        }
        *operand = at(place, *operand);
      }
      int32_t& result = at(place, code.result);
      if (result == kNoSlot && spare.empty()) {
        result = slots++;
      } else if (result == kNoSlot) {
        result = spare.back();
        spare.pop_back();
      }
      code.result = result;
    }
    for (TileSource& input : program_.sources) input.slot = at(place, input.slot);
    for (TileResult& result : program_.results) result.slot = at(place, result.slot);
    program_.slots = slots;
  }

  void collapse_space() {
    std::vector<Strides> strides;
    for (const TileSource& input : program_.sources) strides.push_back(input.strides);
    for (const TileResult& result : program_.results) strides.push_back(result.strides);
    IterationSpace space = collapse(sizes_of(axes_), std::move(strides));
    program_.sizes = std::move(space.sizes);
    size_t next = 0;
    for (TileSource& input : program_.sources) input.strides = std::move(space.operands[next++]);
    for (TileResult& result : program_.results) result.strides = std::move(space.operands[next++]);
  }

  std::vector<Axis> axes_;
  TileProgram program_;
  std::map<ValueId, int32_t> values_;  // Slots, one for each value until place_slots.
  std::set<ValueId> unrounded_;        // Values whose lanes may have more digits than bf16.
};

class ElementwiseKernel final : public HostKernel {
 public:
  ElementwiseKernel(TileProgram program, ThreadPool& pool)
      : program_(std::move(program)), grid_(make_tile_grid(program_)), pool_(pool) {
    // Waking a thread pays off only for at least this many additions.
    constexpr double kGrain = 16384.0;
    const double tile = static_cast<double>(grid_.rows * grid_.columns) * (program_.cost + 1.0);
    grain_ = std::max<int64_t>(1, static_cast<int64_t>(kGrain / tile));
  }

  int64_t scratch_bytes() const override { return pool_.size() * slot_lanes() * 4; }

  void run(const HostArgs& args) override {
    float* const lanes = reinterpret_cast<float*>(args.scratch);
    pool_.parallel(grid_.tiles, grain_, [&](Range tiles, int thread) {
      run_tiles(program_, grid_, tiles, args.inputs, args.outputs, lanes + thread * slot_lanes());
    });
  }

  // A tile is read before it is written if both have the same layout in memory.
  bool may_overwrite(int64_t output, int64_t input) const override {
    const TileResult& result = program_.results[static_cast<size_t>(output)];
    for (const TileSource& source : program_.sources) {
      if (source.kind != TileSource::Kind::kInput || source.index != input) continue;
      return source.strides == result.strides &&
             dtype_bytes(source.dtype) == dtype_bytes(result.dtype);
    }
    return false;
  }

 private:
  int64_t slot_lanes() const { return program_.slots * grid_.capacity; }

  TileProgram program_;
  TileGrid grid_;
  ThreadPool& pool_;
  int64_t grain_ = 1;
};

std::unique_ptr<Kernel> make_elementwise(const Graph& graph, const Node& node, ThreadPool& pool) {
  return std::make_unique<ElementwiseKernel>(Compiler().compile(graph, node), pool);
}

bool has_tile_program(const OpDef& op) {
  return op.op_class == OpClass::kElementwise || op.fusible || op.foldable;
}

const KernelRegistrar kRegisterElementwise{has_tile_program, make_elementwise};

}  // namespace
}  // namespace tessera
