// SPDX-License-Identifier: Apache-2.0
// An elementwise node, or the body of a `fused` node, as a straight program over tiles: a few
// hundred elements that stay in the first-level cache. Compiling is here, running in
// tile_interpreter.h.
#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/cpu/iteration_space.h"
#include "core/graph/graph.h"

namespace tessera {

// What one instruction does to each element. Tiles hold 32-bit lanes: floats, integers, or truth
// values as the floats 0 and 1.
enum class Opcode : uint8_t {
  // Floats.
  kCopy,
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kSquare,
  kAbs,
  kSign,
  kSin,
  kCos,
  kErf,
  kTanh,
  kSigmoid,
  kRelu,
  kSoftplus,
  kSilu,
  kGelu,
  kGeluTanh,
  kRoundToBF16,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMaximum,
  kMinimum,
  kTanhGrad,
  kSigmoidGrad,
  kReluGrad,
  kSiluGrad,
  kGeluGrad,
  kGeluTanhGrad,
  kEqual,
  kLess,
  kLessEqual,
  kIsFinite,
  kSelect,
  kMask,
  // Truth values.
  kAnd,
  kOr,
  kNot,
  // Integers.
  kAddInt,
  kSubInt,
  kMulInt,
  kNegInt,
  kAbsInt,
  kSignInt,
  kMaximumInt,
  kMinimumInt,
  kEqualInt,
  kLessInt,
  kLessEqualInt,
  kSelectInt,
  kMaskInt,
  // Between them.
  kFloatToInt,
  kIntToFloat,
  kTruth,
  kTruthInt,
  kUnsignedToFloat,
};

struct TileInstruction {
  Opcode code = Opcode::kCopy;
  int32_t result = 0;  // Slots.
  int32_t a = 0, b = 0, c = 0;
};

// Where a slot's lanes come from, at the start of each tile.
struct TileSource {
  enum class Kind {
    kInput,       // Of the node: `index`, walked by `strides`.
    kConstant,    // `constant`, everywhere.
    kCoordinate,  // The position on an axis, as an integer, from `constant` walked by `strides`.
  } kind = Kind::kInput;
  int32_t slot = 0;
  int32_t index = 0;
  DType dtype = DType::kF32;
  uint32_t constant = 0;  // The bits of the lane.
  Strides strides;
};

struct TileResult {
  int32_t slot = 0;
  DType dtype = DType::kF32;
  Strides strides;
  // Whether the last instruction may write its lanes straight into the output: nothing that lies in
  // an input's memory is read after it.
  bool in_place = false;
};

struct TileProgram {
  std::vector<int64_t> sizes;  // The collapsed iteration space.
  std::vector<TileSource> sources;
  std::vector<TileInstruction> instructions;
  std::vector<TileResult> results;
  int32_t slots = 0;
  int64_t elements() const;
  double cost = 0.0;  // Of one element, in units of an addition.
};

// Whether `op` can stand in a program.
bool is_tile_op(std::string_view op);
std::vector<std::string_view> tile_ops();

TileProgram compile_tiles(const Graph& graph, const Node& node);

}  // namespace tessera
