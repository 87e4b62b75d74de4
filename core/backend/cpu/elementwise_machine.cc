// SPDX-License-Identifier: Apache-2.0
// One tile at a time: sources are brought into slots of lanes (or pointed at where they lie as such
// already), each instruction runs over all lanes, results are written out.
#include "core/backend/cpu/elementwise_machine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/elementwise_machine.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/simd_convert-inl.h"
#include "core/backend/cpu/simd_math-inl.h"
#include "core/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;
using Ints = hn::ScalableTag<int32_t>;
using Lanes = hn::Vec<Floats>;
using IntLanes = hn::Vec<Ints>;

HWY_INLINE Lanes truth(hn::Mask<Floats> mask) {
  return hn::IfThenElseZero(mask, hn::Set(Floats(), 1.0f));
}
HWY_INLINE hn::Mask<Floats> is_true(Lanes x) { return hn::Ne(x, hn::Zero(Floats())); }
HWY_INLINE IntLanes as_ints(Lanes x) { return hn::BitCast(Ints(), x); }
HWY_INLINE Lanes as_floats(IntLanes x) { return hn::BitCast(Floats(), x); }
HWY_INLINE Lanes int_truth(hn::Mask<Ints> mask) {
  return hn::BitCast(Floats(), hn::IfThenElseZero(mask, as_ints(hn::Set(Floats(), 1.0f))));
}

template <class Function>
HWY_INLINE void each(const float* a, float* result, size_t count, const Function& function) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(function(hn::LoadU(d, a + i)), d, result + i);
  if (i < count) {
    store_some(function(load_some(d, a + i, count - i)), d, result + i, count - i);
  }
}

template <class Function>
HWY_INLINE void each(const float* a, const float* b, float* result, size_t count,
                     const Function& function) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) {
    hn::StoreU(function(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, result + i);
  }
  if (i < count) {
    const size_t rest = count - i;
    store_some(function(load_some(d, a + i, rest), load_some(d, b + i, rest)), d, result + i, rest);
  }
}

template <class Function>
HWY_INLINE void each(const float* a, const float* b, const float* c, float* result, size_t count,
                     const Function& function) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) {
    const Lanes value = function(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i));
    hn::StoreU(value, d, result + i);
  }
  if (i < count) {
    const size_t rest = count - i;
    const Lanes value =
        function(load_some(d, a + i, rest), load_some(d, b + i, rest), load_some(d, c + i, rest));
    store_some(value, d, result + i, rest);
  }
}

// Φ(x), the normal distribution function.
HWY_INLINE Lanes normal_cdf(Lanes x) {
  const Floats d;
  const Lanes half = hn::Set(d, 0.5f);
  return hn::MulAdd(erf_of(hn::Mul(x, hn::Set(d, 0.70710678118654752f))), half, half);
}
HWY_INLINE Lanes gelu_gradient(Lanes x) {
  const Floats d;
  const Lanes density =
      hn::Mul(exp_of(hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f))), hn::Set(d, 0.39894228040143268f));
  return hn::MulAdd(x, density, normal_cdf(x));
}

// 2·√(2/π)·(x + 0.044715x³): gelu_tanh is x·sigmoid of it.
constexpr float kGeluA = 1.5957691216057308f, kGeluB = 0.044715f;
HWY_INLINE Lanes gelu_inner(Lanes x) {
  const Floats d;
  const Lanes cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kGeluB), hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(x, hn::Set(d, kGeluA)), cubic);
}
HWY_INLINE Lanes gelu_tanh_gradient(Lanes x) {
  const Floats d;
  const Lanes one = hn::Set(d, 1.0f), s = sigmoid_of(gelu_inner(x));
  const Lanes slope =
      hn::Mul(hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3.0f * kGeluB), one), hn::Set(d, kGeluA));
  return hn::Mul(s, hn::MulAdd(hn::Mul(x, slope), hn::Sub(one, s), one));
}
HWY_INLINE Lanes silu_gradient(Lanes x) {
  const Lanes one = hn::Set(Floats(), 1.0f), s = sigmoid_of(x);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}
HWY_INLINE Lanes softplus_of(Lanes x) {
  const Floats d;
  const Lanes tail = hn::Log1p(d, exp_of(hn::Neg(hn::Abs(x))));
  // The tail of a NaN is a NaN, whatever the maximum makes of it.
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::IfThenElse(hn::IsNaN(x), x, tail));
}
HWY_INLINE Lanes sign_of(Lanes x) {
  const Floats d;
  const Lanes zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  return hn::IfThenElse(hn::Eq(x, zero), zero, hn::CopySign(one, x));
}
// A NaN operand gives NaN.
HWY_INLINE Lanes larger(Lanes a, Lanes b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
HWY_INLINE Lanes smaller(Lanes a, Lanes b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// Highway's sine and cosine hold for moderate angles only.
template <class Fast>
void angles(const float* a, float* result, size_t count, float (*exact)(float), const Fast& fast) {
  bool moderate = true;
  for (size_t i = 0; i < count; ++i) moderate &= std::abs(a[i]) < 30000.0f;
  if (moderate) return each(a, result, count, fast);
  for (size_t i = 0; i < count; ++i) result[i] = exact(a[i]);
}

void run_float(const TileInstruction& code, const float* a, const float* b, float* r, size_t n) {
  const Floats d;
  switch (code.code) {
    case TileCode::kCopy:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return x; });
    case TileCode::kNeg:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Neg(x); });
    case TileCode::kExp:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return exp_of(x); });
    case TileCode::kLog:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return log_of(x); });
    case TileCode::kSqrt:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Sqrt(x); });
    case TileCode::kRsqrt:
      return each(a, r, n,
                  [d](Lanes x) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); });
    case TileCode::kSquare:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, x); });
    case TileCode::kAbs:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Abs(x); });
    case TileCode::kSign:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return sign_of(x); });
    case TileCode::kSin:
      return angles(a, r, n, std::sin, [d](Lanes x) HWY_ATTR { return hn::Sin(d, x); });
    case TileCode::kCos:
      return angles(a, r, n, std::cos, [d](Lanes x) HWY_ATTR { return hn::Cos(d, x); });
    case TileCode::kErf:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return erf_of(x); });
    case TileCode::kTanh:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return tanh_of(x); });
    case TileCode::kSigmoid:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return sigmoid_of(x); });
    case TileCode::kRelu:
      return each(a, r, n, [d](Lanes x) HWY_ATTR { return larger(x, hn::Zero(d)); });
    case TileCode::kSoftplus:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return softplus_of(x); });
    case TileCode::kSilu:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, sigmoid_of(x)); });
    case TileCode::kGelu:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, normal_cdf(x)); });
    case TileCode::kGeluTanh:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, sigmoid_of(gelu_inner(x))); });
    case TileCode::kRoundToBF16:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return round_to_bf16(x); });
    case TileCode::kAdd:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Add(x, y); });
    case TileCode::kSub:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Sub(x, y); });
    case TileCode::kMul:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Mul(x, y); });
    case TileCode::kDiv:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Div(x, y); });
    case TileCode::kPow:
      for (size_t i = 0; i < n; ++i) r[i] = std::pow(a[i], b[i]);
      return;
    case TileCode::kMaximum:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return larger(x, y); });
    case TileCode::kMinimum:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return smaller(x, y); });
    case TileCode::kTanhGrad:
      return each(a, b, r, n, [d](Lanes y, Lanes dy) HWY_ATTR {
        return hn::Mul(dy, hn::NegMulAdd(y, y, hn::Set(d, 1.0f)));
      });
    case TileCode::kSigmoidGrad:
      return each(a, b, r, n, [d](Lanes y, Lanes dy) HWY_ATTR {
        return hn::Mul(dy, hn::Mul(y, hn::Sub(hn::Set(d, 1.0f), y)));
      });
    case TileCode::kReluGrad:
      return each(a, b, r, n, [d](Lanes y, Lanes dy) HWY_ATTR {
        return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), dy);
      });
    case TileCode::kSiluGrad:
      return each(a, b, r, n,
                  [](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, silu_gradient(x)); });
    case TileCode::kGeluGrad:
      return each(a, b, r, n,
                  [](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, gelu_gradient(x)); });
    case TileCode::kGeluTanhGrad:
      return each(a, b, r, n,
                  [](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, gelu_tanh_gradient(x)); });
    case TileCode::kEqual:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Eq(x, y)); });
    case TileCode::kLess:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Lt(x, y)); });
    case TileCode::kLessEqual:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Le(x, y)); });
    case TileCode::kIsFinite:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return truth(hn::IsFinite(x)); });
    case TileCode::kMask:
      return each(a, b, r, n,
                  [](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); });
    case TileCode::kAnd:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::And(x, y); });
    case TileCode::kOr:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Or(x, y); });
    case TileCode::kNot:
      return each(a, r, n, [d](Lanes x) HWY_ATTR { return hn::Sub(hn::Set(d, 1.0f), x); });
    default:
      CHECK(false, "not a code of floats");
  }
}

void run_int(const TileInstruction& code, const float* a, const float* b, float* r, size_t n) {
  const Floats d;
  const Ints di;
  const auto ints = [&](const auto& function) HWY_ATTR {
    each(a, b, r, n,
         [&](Lanes x, Lanes y) HWY_ATTR { return as_floats(function(as_ints(x), as_ints(y))); });
  };
  const auto compare = [&](const auto& function) HWY_ATTR {
    each(a, b, r, n,
         [&](Lanes x, Lanes y) HWY_ATTR { return int_truth(function(as_ints(x), as_ints(y))); });
  };
  switch (code.code) {
    case TileCode::kAddInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Add(x, y); });
    case TileCode::kSubInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Sub(x, y); });
    case TileCode::kMulInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Mul(x, y); });
    case TileCode::kNegInt:
      return ints([](IntLanes x, IntLanes) HWY_ATTR { return hn::Neg(x); });
    case TileCode::kAbsInt:
      return ints([](IntLanes x, IntLanes) HWY_ATTR { return hn::Abs(x); });
    case TileCode::kSignInt:
      return ints([di](IntLanes x, IntLanes) HWY_ATTR {
        const IntLanes one = hn::Set(di, 1), zero = hn::Zero(di);
        return hn::Sub(hn::IfThenElseZero(hn::Gt(x, zero), one),
                       hn::IfThenElseZero(hn::Lt(x, zero), one));
      });
    case TileCode::kMaximumInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Max(x, y); });
    case TileCode::kMinimumInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Min(x, y); });
    case TileCode::kEqualInt:
      return compare([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Eq(x, y); });
    case TileCode::kLessInt:
      return compare([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Lt(x, y); });
    case TileCode::kLessEqualInt:
      return compare([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Not(hn::Gt(x, y)); });
    case TileCode::kMaskInt:
      return each(a, b, r, n,
                  [](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); });
    case TileCode::kFloatToInt:
      return each(a, r, n, [di](Lanes x) HWY_ATTR { return as_floats(hn::ConvertTo(di, x)); });
    case TileCode::kIntToFloat:
      return each(a, r, n, [d](Lanes x) HWY_ATTR { return hn::ConvertTo(d, as_ints(x)); });
    case TileCode::kTruth:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return truth(is_true(x)); });
    case TileCode::kTruthInt:
      return each(a, r, n, [di](Lanes x) HWY_ATTR {
        return int_truth(hn::Not(hn::Eq(as_ints(x), hn::Zero(di))));
      });
    default:
      CHECK(false, "not a code of integers");
  }
}

void run_instruction(const TileInstruction& code, float* const* slots, size_t count) {
  const float* const a = slots[code.a];
  const float* const b = slots[code.b];
  float* const result = slots[code.result];
  if (code.code == TileCode::kSelect || code.code == TileCode::kSelectInt) {
    return each(a, b, slots[code.c], result, count, [](Lanes on, Lanes yes, Lanes no) HWY_ATTR {
      return hn::IfThenElse(is_true(on), yes, no);
    });
  }
  if (code.code < TileCode::kAddInt) return run_float(code, a, b, result, count);
  run_int(code, a, b, result, count);
}

// One row of `count` elements into lanes.
void load_row(DType dtype, const std::byte* base, int64_t offset, int64_t stride, size_t count,
              float* lanes) {
  const auto at = [&](size_t i) { return offset + static_cast<int64_t>(i) * stride; };
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: {
      const float* const from = reinterpret_cast<const float*>(base);
      if (stride == 1) {
        std::memcpy(lanes, from + offset, count * sizeof(float));
      } else if (stride == 0) {
        std::fill_n(lanes, count, from[offset]);
      } else {
        for (size_t i = 0; i < count; ++i) lanes[i] = from[at(i)];
      }
      return;
    }
    case DType::kBF16: {
      const BFloat16* const from = reinterpret_cast<const BFloat16*>(base);
      if (stride == 0) {
        std::fill_n(lanes, count, static_cast<float>(from[offset]));
        return;
      }
      size_t i = 0;
      if (stride == 1) {
        const Floats d;
        for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
          hn::StoreU(load_floats(d, from + offset + i), d, lanes + i);
        }
      }
      for (; i < count; ++i) lanes[i] = static_cast<float>(from[at(i)]);
      return;
    }
    case DType::kBool:
      for (size_t i = 0; i < count; ++i) lanes[i] = base[at(i)] != std::byte{0} ? 1.0f : 0.0f;
      return;
    case DType::kU32:
    case DType::kF64:
      CHECK(false, "no lanes for this dtype");
  }
}

void store_row(DType dtype, std::byte* base, int64_t offset, int64_t stride, size_t count,
               const float* lanes) {
  const auto at = [&](size_t i) { return offset + static_cast<int64_t>(i) * stride; };
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: {
      float* const to = reinterpret_cast<float*>(base);
      if (stride == 1) {
        std::memcpy(to + offset, lanes, count * sizeof(float));
      } else {
        for (size_t i = 0; i < count; ++i) to[at(i)] = lanes[i];
      }
      return;
    }
    case DType::kBF16: {
      BFloat16* const to = reinterpret_cast<BFloat16*>(base);
      size_t i = 0;
      if (stride == 1) {
        const Floats d;
        for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
          store_floats(hn::LoadU(d, lanes + i), d, to + offset + i);
        }
      }
      for (; i < count; ++i) to[at(i)] = BFloat16(lanes[i]);
      return;
    }
    case DType::kBool:
      for (size_t i = 0; i < count; ++i) base[at(i)] = std::byte{lanes[i] != 0.0f};
      return;
    case DType::kU32:
    case DType::kF64:
      CHECK(false, "no lanes for this dtype");
  }
}

int64_t column_stride(const Strides& strides) { return strides.empty() ? 0 : strides.back(); }
int64_t row_stride(const Strides& strides) {
  return strides.size() < 2 ? 0 : strides[strides.size() - 2];
}
bool everywhere_same(const Strides& strides) {
  return std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
}
// Whether the tile's elements lie one after another.
bool adjacent(const Strides& strides, const TileGrid& grid) {
  if (column_stride(strides) != 1 && grid.columns != 1) return false;
  return grid.rows == 1 || row_stride(strides) == grid.columns;
}

void fill_coordinates(const Strides& strides, int64_t first, int64_t rows, int64_t columns,
                      float* lanes) {
  const int64_t by_row = row_stride(strides), by_column = column_stride(strides);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto value = static_cast<int32_t>(first + r * by_row + c * by_column);
      std::memcpy(lanes + r * columns + c, &value, sizeof(value));
    }
  }
}

}  // namespace

void run_tiles_on_target(const TileProgram& program, const TileGrid& grid, Range range,
                         std::span<const std::byte* const> inputs,
                         std::span<std::byte* const> outputs, float* memory) {
  const size_t rank = program.sizes.size();
  const int64_t columns = rank > 0 ? program.sizes[rank - 1] : 1;
  const int64_t rows = rank > 1 ? program.sizes[rank - 2] : 1;
  const int64_t column_tiles = (columns + grid.columns - 1) / grid.columns;
  const int64_t row_tiles = (rows + grid.rows - 1) / grid.rows;

  // A fixed bound keeps this off the heap; programs are cut to it by the fusion pass's own limit.
  constexpr size_t kMostSlots = 256, kMostRank = 16;
  CHECK(program.slots <= static_cast<int32_t>(kMostSlots) && rank <= kMostRank);
  float* home[kMostSlots];
  float* slots[kMostSlots];
  for (size_t s = 0; s < static_cast<size_t>(program.slots); ++s) {
    home[s] = slots[s] = memory + static_cast<int64_t>(s) * grid.capacity;
  }
  const auto capacity = static_cast<size_t>(grid.capacity);
  for (const TileSource& source : program.sources) {
    float* const lanes = home[source.slot];
    if (source.kind == TileSource::Kind::kConstant) {
      float value = 0.0f;
      std::memcpy(&value, &source.constant, sizeof(value));
      std::fill_n(lanes, capacity, value);
    } else if (source.kind == TileSource::Kind::kInput && everywhere_same(source.strides)) {
      load_row(source.dtype, inputs[static_cast<size_t>(source.index)], 0, 0, capacity, lanes);
    }
  }

  int64_t position[kMostRank] = {};
  const auto offset = [&](const Strides& strides) {
    int64_t sum = 0;
    for (size_t d = 0; d < strides.size(); ++d) sum += strides[d] * position[d];
    return sum;
  };
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    int64_t rest = tile;
    int64_t tile_columns = 1, tile_rows = 1;
    if (rank > 0) {
      position[rank - 1] = rest % column_tiles * grid.columns;
      rest /= column_tiles;
      tile_columns = std::min(grid.columns, columns - position[rank - 1]);
    }
    if (rank > 1) {
      position[rank - 2] = rest % row_tiles * grid.rows;
      rest /= row_tiles;
      tile_rows = std::min(grid.rows, rows - position[rank - 2]);
    }
    for (size_t d = rank; d-- > 2;) {
      position[d - 2] = rest % program.sizes[d - 2];
      rest /= program.sizes[d - 2];
    }
    const auto count = static_cast<size_t>(tile_rows * tile_columns);

    for (const TileSource& source : program.sources) {
      float* const lanes = home[source.slot];
      if (source.kind == TileSource::Kind::kConstant) continue;
      const int64_t first = offset(source.strides);
      if (source.kind == TileSource::Kind::kCoordinate) {
        fill_coordinates(source.strides, first, tile_rows, tile_columns, lanes);
        continue;
      }
      if (everywhere_same(source.strides)) continue;
      const std::byte* const base = inputs[static_cast<size_t>(source.index)];
      if (adjacent(source.strides, grid)) {
        if (source.dtype == DType::kF32 || source.dtype == DType::kI32) {
          // Never written: the compiler gives results slots of their own.
          slots[source.slot] = const_cast<float*>(reinterpret_cast<const float*>(base)) + first;
        } else {
          load_row(source.dtype, base, first, 1, count, lanes);
        }
        continue;
      }
      for (int64_t r = 0; r < tile_rows; ++r) {
        load_row(source.dtype, base, first + r * row_stride(source.strides),
                 column_stride(source.strides), static_cast<size_t>(tile_columns),
                 lanes + r * tile_columns);
      }
    }

    for (size_t i = 0; i < program.results.size(); ++i) {
      const TileResult& result = program.results[i];
      const bool plain = result.dtype == DType::kF32 || result.dtype == DType::kI32;
      if (result.in_place && plain && adjacent(result.strides, grid)) {
        slots[result.slot] = reinterpret_cast<float*>(outputs[i]) + offset(result.strides);
      }
    }
    for (const TileInstruction& code : program.instructions) run_instruction(code, slots, count);

    for (size_t i = 0; i < program.results.size(); ++i) {
      const TileResult& result = program.results[i];
      const int64_t first = offset(result.strides);
      const float* const lanes = slots[result.slot];
      // Computed in place. (Lanes elsewhere may by chance lie where a wider result would end.)
      const bool in_place = dtype_bytes(result.dtype) == static_cast<int64_t>(sizeof(float)) &&
                            lanes == reinterpret_cast<const float*>(outputs[i]) + first;
      if (in_place) continue;
      if (adjacent(result.strides, grid)) {
        store_row(result.dtype, outputs[i], first, 1, count, lanes);
        continue;
      }
      for (int64_t r = 0; r < tile_rows; ++r) {
        store_row(result.dtype, outputs[i], first + r * row_stride(result.strides),
                  column_stride(result.strides), static_cast<size_t>(tile_columns),
                  lanes + r * tile_columns);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(run_tiles_on_target);

TileGrid make_tile_grid(const TileProgram& program) {
  // All slots together fit well inside the first-level cache.
  constexpr int64_t kBytes = 24 * 1024;
  const int64_t room = kBytes / 4 / std::max<int32_t>(1, program.slots);
  TileGrid grid;
  grid.capacity = std::clamp<int64_t>(room / 64 * 64, 128, 1024);
  const size_t rank = program.sizes.size();
  const int64_t columns = rank > 0 ? program.sizes[rank - 1] : 1;
  const int64_t rows = rank > 1 ? program.sizes[rank - 2] : 1;
  grid.columns = std::min(columns, grid.capacity);
  grid.rows = columns <= grid.capacity ? std::clamp<int64_t>(grid.capacity / columns, 1, rows) : 1;
  grid.tiles = program.elements() / (rows * columns) * ((rows + grid.rows - 1) / grid.rows) *
               ((columns + grid.columns - 1) / grid.columns);
  return grid;
}

void run_tiles(const TileProgram& program, const TileGrid& grid, Range range,
               std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               float* slots) {
  HWY_DYNAMIC_DISPATCH(run_tiles_on_target)(program, grid, range, inputs, outputs, slots);
}

}  // namespace tessera
#endif  // HWY_ONCE
