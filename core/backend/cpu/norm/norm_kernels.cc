// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/norm/norm_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/norm/norm_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void norm_row(const NormRows& rows, int64_t row) {
  const int64_t width = rows.width;
  const T* x = static_cast<const T*>(rows.x) + row * width;
  T* y = static_cast<T*>(rows.y) + row * width;
  const float share = 1.0f / static_cast<float>(width);

  float mean = 0.0f;
  if (rows.centred) {
    mean = share * sum_of(sum_over(
                       width, [&](int64_t i, int64_t left) HWY_ATTR { return load(x + i, left); }));
    rows.mean[row] = mean;
  }
  const Vec centre = splat(mean);
  // Elements beyond the row load as the mean: they add nothing.
  const Vec squares = sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
    const Vec distance = hn::Sub(load(x + i, left, mean), centre);
    return hn::Mul(distance, distance);
  });
  const float rstd = 1.0f / std::sqrt(sum_of(squares) * share + rows.epsilon);
  rows.rstd[row] = rstd;

  const Vec factor = splat(rstd);
  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    Vec value = hn::Mul(hn::Sub(load(x + i, left), centre), factor);
    if (rows.scale != nullptr) value = hn::Mul(value, load(rows.scale + i, left));
    if (rows.bias != nullptr) value = hn::Add(value, load(rows.bias + i, left));
    store(value, y + i, left);
  }
}

template <typename T>
void norm_grad_row(const NormGradRows& rows, int64_t row, float* dscale, float* dbias) {
  const int64_t width = rows.width;
  const T* x = static_cast<const T*>(rows.x) + row * width;
  const T* cotangent = static_cast<const T*>(rows.cotangent) + row * width;
  T* dx = static_cast<T*>(rows.dx) + row * width;
  const Vec centre = splat(rows.centred ? rows.mean[row] : 0.0f);
  const Vec rstd = splat(rows.rstd[row]);
  const float share = 1.0f / static_cast<float>(width);

  const auto scaled = [&](int64_t i, int64_t left) HWY_ATTR {
    const Vec dy = load(cotangent + i, left);
    return rows.scale == nullptr ? dy : hn::Mul(dy, load(rows.scale + i, left));
  };
  const auto normalised = [&](int64_t i, int64_t left) HWY_ATTR {
    return hn::Mul(hn::Sub(load(x + i, left), centre), rstd);
  };
  const Vec along = splat(share * sum_of(sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
                            return hn::Mul(scaled(i, left), normalised(i, left));
                          })));
  const Vec level = splat(rows.centred ? share * sum_of(sum_over(width, scaled)) : 0.0f);

  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    const Vec unit = normalised(i, left);
    const Vec dy = load(cotangent + i, left);
    const Vec inner = hn::Sub(hn::NegMulAdd(unit, along, scaled(i, left)), level);
    if (dscale != nullptr) store(hn::MulAdd(dy, unit, load(dscale + i, left)), dscale + i, left);
    if (dbias != nullptr) store(hn::Add(dy, load(dbias + i, left)), dbias + i, left);
    store(hn::Mul(inner, rstd), dx + i, left);
  }
}

template <typename T>
void add_rows_as(const float* rows, int64_t count, int64_t width, int64_t begin, int64_t end,
                 T* out) {
  for (int64_t i = begin; i < end; i += lanes()) {
    const int64_t left = end - i;
    Vec sum = load(rows + i, left);
    for (int64_t row = 1; row < count; ++row)
      sum = hn::Add(sum, load(rows + row * width + i, left));
    store(sum, out + i, left);
  }
}

void NormLoop(const NormRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? norm_row<BFloat16>(rows, row) : norm_row<float>(rows, row);
}

void NormGradLoop(const NormGradRows& rows, int64_t begin, int64_t end, float* dscale,
                  float* dbias) {
  for (int64_t row = begin; row < end; ++row) {
    rows.dtype == DType::kBF16 ? norm_grad_row<BFloat16>(rows, row, dscale, dbias)
                               : norm_grad_row<float>(rows, row, dscale, dbias);
  }
}

void AddRowsLoop(const float* rows, int64_t count, int64_t width, int64_t begin, int64_t end,
                 DType dtype, void* out) {
  if (dtype == DType::kBF16)
    return add_rows_as(rows, count, width, begin, end, static_cast<BFloat16*>(out));
  add_rows_as(rows, count, width, begin, end, static_cast<float*>(out));
}

void WidenLoop(const BFloat16* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += lanes()) store(load(x + i, count - i), out + i, count - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(NormLoop);
HWY_EXPORT(NormGradLoop);
HWY_EXPORT(AddRowsLoop);
HWY_EXPORT(WidenLoop);
}  // namespace

void norm_rows(const NormRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(NormLoop)(rows, begin, end);
}

void norm_grad_rows(const NormGradRows& rows, int64_t begin, int64_t end, float* dscale,
                    float* dbias) {
  HWY_DYNAMIC_DISPATCH(NormGradLoop)(rows, begin, end, dscale, dbias);
}

void add_rows(const float* rows, int64_t count, int64_t width, int64_t begin, int64_t end,
              DType dtype, void* out) {
  HWY_DYNAMIC_DISPATCH(AddRowsLoop)(rows, count, width, begin, end, dtype, out);
}

void widen(const void* x, DType dtype, int64_t count, float* out) {
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(x), count, out);
  } else {
    HWY_DYNAMIC_DISPATCH(WidenLoop)(static_cast<const BFloat16*>(x), count, out);
  }
}

}  // namespace tessera
#endif  // HWY_ONCE
