// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/reduction/reduce_rows.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/reduction/reduce_rows.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/simd_convert-inl.h"
#include "core/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;
using Lanes = hn::Vec<Floats>;

struct Sum {
  static constexpr float kNeutral = 0.0f;
  static HWY_INLINE Lanes combine(Lanes a, Lanes b) { return hn::Add(a, b); }
  static float combine(float a, float b) { return a + b; }
};
struct Maximum {
  static constexpr float kNeutral = -std::numeric_limits<float>::infinity();
  static HWY_INLINE Lanes combine(Lanes a, Lanes b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
  static float combine(float a, float b) { return a > b || a != a ? a : b; }
};

template <class Op, typename T>
float run_of(const T* from, size_t count) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  Lanes a = hn::Set(d, Op::kNeutral), b = a, c = a, e = a;
  size_t i = 0;
  for (; i + 4 * width <= count; i += 4 * width) {
    a = Op::combine(a, load_floats(d, from + i));
    b = Op::combine(b, load_floats(d, from + i + width));
    c = Op::combine(c, load_floats(d, from + i + 2 * width));
    e = Op::combine(e, load_floats(d, from + i + 3 * width));
  }
  for (; i + width <= count; i += width) a = Op::combine(a, load_floats(d, from + i));
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(Op::combine(Op::combine(a, b), Op::combine(c, e)), d, lanes);
  float result = lanes[0];
  for (size_t lane = 1; lane < width; ++lane) result = Op::combine(result, lanes[lane]);
  for (; i < count; ++i) result = Op::combine(result, static_cast<float>(from[i]));
  return result;
}

template <class Op, typename T>
void row_of(const T* from, size_t count, float* into) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) {
    hn::StoreU(Op::combine(hn::LoadU(d, into + i), load_floats(d, from + i)), d, into + i);
  }
  for (; i < count; ++i) into[i] = Op::combine(into[i], static_cast<float>(from[i]));
}

template <class Op>
float run_of_dtype(DType dtype, const std::byte* from, size_t count) {
  if (dtype == DType::kF32) return run_of<Op>(reinterpret_cast<const float*>(from), count);
  return run_of<Op>(reinterpret_cast<const BFloat16*>(from), count);
}

template <class Op>
void row_of_dtype(DType dtype, const std::byte* from, size_t count, float* into) {
  if (dtype == DType::kF32) return row_of<Op>(reinterpret_cast<const float*>(from), count, into);
  row_of<Op>(reinterpret_cast<const BFloat16*>(from), count, into);
}

}  // namespace

float reduce_run_on_target(Reduction reduction, DType dtype, const std::byte* from, size_t count) {
  return reduction == Reduction::kSum ? run_of_dtype<Sum>(dtype, from, count)
                                      : run_of_dtype<Maximum>(dtype, from, count);
}

void reduce_row_on_target(Reduction reduction, DType dtype, const std::byte* from, size_t count,
                          float* into) {
  if (reduction == Reduction::kSum) return row_of_dtype<Sum>(dtype, from, count, into);
  row_of_dtype<Maximum>(dtype, from, count, into);
}

void store_sums_on_target(DType dtype, const float* sums, size_t count, std::byte* to) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  const auto store = [&](auto* elements) HWY_ATTR {
    size_t i = 0;
    for (; i + width <= count; i += width) {
      store_floats(hn::LoadU(d, sums + i), d, elements + i);
    }
    if (i < count) store_some(load_some(d, sums + i, count - i), d, elements + i, count - i);
  };
  if (dtype == DType::kF32) return store(reinterpret_cast<float*>(to));
  store(reinterpret_cast<BFloat16*>(to));
}

void widen_row_on_target(const std::byte* from, size_t count, float* to) {
  const BFloat16* const elements = reinterpret_cast<const BFloat16*>(from);
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(load_floats(d, elements + i), d, to + i);
  for (; i < count; ++i) to[i] = static_cast<float>(elements[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(reduce_run_on_target);
HWY_EXPORT(reduce_row_on_target);
HWY_EXPORT(store_sums_on_target);
HWY_EXPORT(widen_row_on_target);

float reduce_run(Reduction reduction, DType dtype, const std::byte* from, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(reduce_run_on_target)(reduction, dtype, from,
                                                    static_cast<size_t>(count));
}

void reduce_row(Reduction reduction, DType dtype, const std::byte* from, int64_t count,
                float* into) {
  HWY_DYNAMIC_DISPATCH(reduce_row_on_target)
  (reduction, dtype, from, static_cast<size_t>(count), into);
}

void store_sums(DType dtype, const float* sums, int64_t count, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(store_sums_on_target)(dtype, sums, static_cast<size_t>(count), to);
}

void widen_row(const std::byte* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(widen_row_on_target)(from, static_cast<size_t>(count), to);
}

}  // namespace tessera
#endif  // HWY_ONCE
