// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/few_rows_product.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/few_rows_product.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Of a row-major B: rows that enter a sum at once, from which the next are asked of memory ahead.
constexpr int64_t kDepth = 8;
// Of a transposed B: sums of kTile rows by kTile columns stay in registers.
constexpr int kTile = 4;

// Elements of B in a cache line.
template <typename T>
constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));

// A as f32, its rows contiguous.
template <typename T>
void widen_rows(const ProductShape& shape, const T* a, float* to) {
  for (int64_t i = 0; i < shape.m; ++i)
    for (int64_t j = 0; j < shape.k; j += lanes())
      store(load(a + i * shape.a.leading + j, shape.k - j), to + i * shape.k + j, shape.k - j);
}

// `depth` rows of B from `b` on, times A's elements of the same number, are added to the sums of a
// span of columns.
template <int kRowsOfB, typename T>
HWY_INLINE void add_rows(int64_t rows, int64_t columns, const float* a, int64_t a_stride,
                         const T* b, int64_t b_stride, const T* end, float* sums,
                         int64_t sum_stride) {
  for (int64_t j = 0; j < columns; j += lanes()) {
    const int64_t left = columns - j;
    Vec right[kRowsOfB];
    for (int i = 0; i < kRowsOfB; ++i) right[i] = load(b + i * b_stride + j, left);
    if (j % kLine<T> == 0 && b + 2 * kRowsOfB * b_stride < end) {
      for (int i = 0; i < kRowsOfB; ++i) hwy::Prefetch(b + (kRowsOfB + i) * b_stride + j);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const float* const factors = a + row * a_stride;
      float* const at = sums + row * sum_stride + j;
      Vec sum = load(at);
      for (int i = 0; i < kRowsOfB; ++i) sum = hn::MulAdd(splat(factors[i]), right[i], sum);
      store(sum, at);
    }
  }
}

// B's rows stream by; every span of columns takes all of them, in order.
template <typename T, typename Out>
void row_major(const ProductShape& shape, const float* a, int64_t a_stride, const T* b, Out* c,
               float* sums) {
  const int64_t span = kSpanFloats / shape.m / lanes() * lanes();
  const int64_t stride = span + kPadFloats;
  for (int64_t from = 0; from < shape.n; from += span) {
    const int64_t columns = std::min(span, shape.n - from);
    for (int64_t row = 0; row < shape.m; ++row)
      std::fill_n(sums + row * stride, (columns + lanes() - 1) / lanes() * lanes(), 0.0f);
    const T* const end = b + (shape.k - 1) * shape.b.leading + shape.n;
    int64_t k = 0;
    for (; k + kDepth <= shape.k; k += kDepth)
      add_rows<kDepth>(shape.m, columns, a + k, a_stride, b + k * shape.b.leading + from,
                       shape.b.leading, end, sums, stride);
    for (; k < shape.k; ++k)
      add_rows<1>(shape.m, columns, a + k, a_stride, b + k * shape.b.leading + from,
                  shape.b.leading, end, sums, stride);
    for (int64_t row = 0; row < shape.m; ++row)
      for (int64_t j = 0; j < columns; j += lanes())
        store(load(sums + row * stride + j), c + row * shape.c_leading + from + j, columns - j);
  }
}

// R rows of A by N columns: dot products along k. `ahead`: the next N columns are asked of memory.
template <int R, int N, typename T, typename Out>
HWY_INLINE void dot_tile(const ProductShape& shape, const float* a, int64_t a_stride, const T* b,
                         Out* c, bool ahead) {
  Vec sum[R][N];
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < N; ++j) sum[i][j] = splat(0.0f);
  for (int64_t k = 0; k < shape.k; k += lanes()) {
    const int64_t left = shape.k - k;
    Vec right[N];
    for (int j = 0; j < N; ++j) right[j] = load(b + j * shape.b.leading + k, left);
    if (ahead && k % kLine<T> == 0) {
      for (int j = 0; j < N; ++j) hwy::Prefetch(b + (N + j) * shape.b.leading + k);
    }
    for (int i = 0; i < R; ++i) {
      const Vec factor = load(a + i * a_stride + k, left);
      for (int j = 0; j < N; ++j) sum[i][j] = hn::MulAdd(factor, right[j], sum[i][j]);
    }
  }
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < N; ++j) c[i * shape.c_leading + j] = Out(sum_of(sum[i][j]));
}

template <int N, typename T, typename Out>
void dot_columns(const ProductShape& shape, const float* a, int64_t a_stride, const T* b, Out* c,
                 bool ahead) {
  int64_t row = 0;
  for (; row + kTile <= shape.m; row += kTile)
    dot_tile<kTile, N>(shape, a + row * a_stride, a_stride, b, c + row * shape.c_leading,
                       ahead && row == 0);
  for (; row < shape.m; ++row)
    dot_tile<1, N>(shape, a + row * a_stride, a_stride, b, c + row * shape.c_leading,
                   ahead && row == 0);
}

template <typename T, typename Out>
void transposed(const ProductShape& shape, const float* a, int64_t a_stride, const T* b, Out* c) {
  int64_t column = 0;
  for (; column + kTile <= shape.n; column += kTile)
    dot_columns<kTile>(shape, a, a_stride, b + column * shape.b.leading, c + column,
                       column + 2 * kTile <= shape.n);
  for (; column < shape.n; ++column)
    dot_columns<1>(shape, a, a_stride, b + column * shape.b.leading, c + column, false);
}

template <typename T, typename Out>
void product(const ProductShape& shape, const T* a, const T* b, Out* c, float* scratch) {
  float* const sums = scratch;
  float* const wide = scratch + kSpanFloats + kPadFloats * shape.m;
  const float* rows = wide;
  int64_t stride = shape.k;
  if constexpr (std::is_same_v<T, float>) {
    rows = a;
    stride = shape.a.leading;
  } else {
    widen_rows(shape, a, wide);
  }
  if (shape.b.transposed) {
    transposed(shape, rows, stride, b, c);
  } else {
    row_major(shape, rows, stride, b, c, sums);
  }
}

void FewRowsProduct(const ProductShape& shape, const void* a, const void* b, void* c,
                    float* scratch) {
  const auto as = [&](auto in, auto out) {
    using T = decltype(in);
    using Out = decltype(out);
    product(shape, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<Out*>(c),
            scratch);
  };
  if (shape.input == DType::kF32) {
    as(float(), float());
  } else if (shape.output == DType::kF32) {
    as(BFloat16(), float());
  } else {
    as(BFloat16(), BFloat16());
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(FewRowsProduct);
}  // namespace

int64_t few_rows_scratch_floats(const ProductShape& shape) {
  return kSpanFloats + shape.m * (kPadFloats + (shape.input == DType::kF32 ? 0 : shape.k));
}

void few_rows_product(const ProductShape& shape, const void* a, const void* b, void* c,
                      float* scratch) {
  HWY_DYNAMIC_DISPATCH(FewRowsProduct)(shape, a, b, c, scratch);
}

}  // namespace tessera
#endif  // HWY_ONCE
