// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich, 2019), LayerNorm (Ba et al., 2016) and their gradients, alone or
// with a residual: the norm of a sum, the gradient plus another cotangent. A row that fits in the
// registers of its threads is read once: 4 bytes an element in bf16, 6 for the gradient; with a
// residual 8 each. Sums are rounded as if they were launches of their own. The gradients of the
// weights are summed over the rows of a block in registers, then over the blocks in order.
#include "plugins/cuda/kernels/norm.h"
#include "plugins/cuda/kernels/rows.cuh"

namespace tessera::cuda {
namespace {

// kElements weights from `column` on.
template <int kElements>
__device__ void load_weights(const void* weights, bool narrow, int64_t column,
                             float (&to)[kElements]) {
  if (narrow) {
    load_vector(static_cast<const bf16*>(weights) + column, to);
  } else {
    load_vector(static_cast<const float*>(weights) + column, to);
  }
}

// The mean (0 unless kCentered), and 1/sqrt of the mean square distance from it. The second pass
// over registers keeps the precision that E[x²] - E[x]² loses.
template <bool kCentered, typename T, int kElements>
__device__ float2 statistics(const HeldRow<T, kElements, kHeldPacks>& x, const Place& at,
                             const NormParameters& p) {
  float mean = 0.0f, squares = 0.0f;
  if (kCentered) {
    for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
      float value[kElements];
      x.get(column, slot, value);
#pragma unroll
      for (int i = 0; i < kElements; ++i) mean += value[i];
    });
    mean = sum_of_lanes(mean, at.lanes) * p.inverse_width;
  }
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float value[kElements];
    x.get(column, slot, value);
#pragma unroll
    for (int i = 0; i < kElements; ++i) squares = fmaf(value[i] - mean, value[i] - mean, squares);
  });
  return {mean, 1.0f / sqrtf(fmaf(sum_of_lanes(squares, at.lanes), p.inverse_width, p.epsilon))};
}

template <bool kCentered, typename T, int kElements>
__device__ void norm(const NormParameters& p) {
  const Place at = place_of(p.rows, blockIdx.x, kElements);
  const int64_t begin = at.row * p.rows.width;
  HeldRow<T, kElements, kHeldPacks> x(static_cast<const T*>(p.x) + begin, at);
  if (p.addend != nullptr)
    x.add(static_cast<const T*>(p.addend) + begin, static_cast<T*>(p.sum) + begin, at);
  T* const y = static_cast<T*>(p.y) + begin;
  const auto [mean, rstd] = statistics<kCentered>(x, at, p);
  if (at.leads()) {
    p.rstd[at.row] = rstd;
    if (kCentered) p.mean[at.row] = mean;
  }
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float value[kElements], weight[kElements];
    x.get(column, slot, value);
#pragma unroll
    for (int i = 0; i < kElements; ++i) value[i] = (value[i] - mean) * rstd;
    if (p.scale != nullptr) {
      load_weights(p.scale, p.narrow_weights, column, weight);
#pragma unroll
      for (int i = 0; i < kElements; ++i) value[i] *= weight[i];
    }
    if (p.bias != nullptr) {
      load_weights(p.bias, p.narrow_weights, column, weight);
#pragma unroll
      for (int i = 0; i < kElements; ++i) value[i] += weight[i];
    }
    store_vector(y + column, value);
  });
}

// The sums over rows of the columns of one thread: of held packs in registers, of others in the
// block's row of the scratch memory.
template <int kElements>
class ColumnSums {
 public:
  __device__ explicit ColumnSums(float* sums) : sums_(sums) {}

  // `first`: this is the block's first row.
  __device__ void add(int64_t column, int slot, const float (&terms)[kElements], bool first) {
    if (sums_ == nullptr) return;
    if (slot >= 0) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) held_[slot][i] += terms[i];
      return;
    }
    float sum[kElements] = {};
    if (!first) load_vector(sums_ + column, sum);
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum[i] += terms[i];
    store_vector(sums_ + column, sum);
  }

  // Writes the held sums. Where the block has several rows at a time, all of them are held, and
  // shared memory adds them in order.
  __device__ void finish(const Place& columns, int64_t width) {
    if (sums_ == nullptr) return;
    if (columns.lanes > 32) {
      for_packs<kGradPacks>(columns, [&](int64_t column, int slot) {
        if (slot >= 0) store_vector(sums_ + column, held_[slot]);
      });
      return;
    }
    __shared__ float shared[32 * kGradPacks * kElements];
    __syncthreads();  // An earlier call's sums are written.
    for (int column = threadIdx.x; column < width; column += kRowThreads) shared[column] = 0.0f;
#pragma unroll 1
    for (int row = 0; row < (kRowThreads >> columns.lane_bits); ++row) {
      __syncthreads();
      if (static_cast<int>(threadIdx.x >> columns.lane_bits) != row) continue;
      for_packs<kGradPacks>(columns, [&](int64_t column, int slot) {
        if (slot < 0) return;
#pragma unroll
        for (int i = 0; i < kElements; ++i) shared[column + i] += held_[slot][i];
      });
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t column = threadIdx.x; column < width; column += kRowThreads)
      sums_[column] = shared[column];
  }

 private:
  float* sums_;
  float held_[kGradPacks][kElements] = {};
};

// The bias of rms_norm, which has none.
struct NoSums {
  __device__ explicit NoSums(float*) {}
  template <typename Terms>
  __device__ void add(int64_t, int, const Terms&, bool) {}
  __device__ void finish(const Place&, int64_t) {}
};

__device__ Place without_columns(Place at) {
  at.width = 0;
  return at;
}

// One row of the gradient: with x̂ = (x - mean)·rstd and s = dy·scale,
// dx = (s - x̂·mean(s·x̂) - mean(s))·rstd, the last mean for layer_norm only.
template <bool kCentered, typename T, int kElements>
class GradRow {
 public:
  __device__ GradRow(const NormGradParameters& p, const Place& at)
      : p_(p),
        at_(at),
        x_(static_cast<const T*>(p.x) + at.row * p.rows.width, at),
        cotangent_(static_cast<const T*>(p.cotangent) + at.row * p.rows.width, at),
        addend_(static_cast<const T*>(p.addend) + at.row * p.rows.width,
                p.addend == nullptr ? without_columns(at) : at),
        mean_(kCentered && at.width > 0 ? p.mean[at.row] : 0.0f),
        rstd_(at.width > 0 ? p.rstd[at.row] : 0.0f) {}

  template <typename BiasSums>
  __device__ void run(ColumnSums<kElements>& dscale, BiasSums& dbias, bool first) {
    float sums[kCentered ? 2 : 1] = {};
    for_packs<kGradPacks>(at_, [&](int64_t column, int slot) {
      read(column, slot);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        sums[0] = fmaf(scaled_[i], normal_[i], sums[0]);
        if (kCentered) sums[kCentered] += scaled_[i];
      }
    });
    sum_lanes(sums, at_.lanes);
    const float projection = sums[0] * p_.inverse_width;
    const float level = kCentered ? sums[kCentered] * p_.inverse_width : 0.0f;
    T* const dx = static_cast<T*>(p_.dx) + at_.row * p_.rows.width;
    for_packs<kGradPacks>(at_, [&](int64_t column, int slot) {
      read(column, slot);
      dbias.add(column, slot, dy_, first);
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        dy_[i] *= normal_[i];
        scaled_[i] = (fmaf(-normal_[i], projection, scaled_[i]) - level) * rstd_;
      }
      dscale.add(column, slot, dy_, first);
      if (p_.addend != nullptr) add_to_gradient(column, slot);
      store_vector(dx + column, scaled_);
    });
  }

 private:
  __device__ void read(int64_t column, int slot) {
    x_.get(column, slot, normal_);
    cotangent_.get(column, slot, dy_);
    if (p_.scale != nullptr) load_weights(p_.scale, p_.narrow_weights, column, scaled_);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      normal_[i] = (normal_[i] - mean_) * rstd_;
      scaled_[i] = p_.scale != nullptr ? dy_[i] * scaled_[i] : dy_[i];
    }
  }

  __device__ void add_to_gradient(int64_t column, int slot) {
    float term[kElements];
    addend_.get(column, slot, term);
#pragma unroll
    for (int i = 0; i < kElements; ++i)  // Not contracted with the product before it.
      scaled_[i] = __fadd_rn(to_float(from_float<T>(scaled_[i])), term[i]);
  }

  const NormGradParameters& p_;
  const Place& at_;
  HeldRow<T, kElements, kGradPacks> x_, cotangent_, addend_;
  float mean_, rstd_;
  float normal_[kElements], dy_[kElements], scaled_[kElements];  // Values of the current pack.
};

template <bool kCentered, typename T, int kElements>
__device__ void norm_grad(const NormGradParameters& p) {
  const auto sums_of_block = [&](float* sums) {
    return sums == nullptr ? nullptr : sums + blockIdx.x * p.rows.width;
  };
  ColumnSums<kElements> dscale(sums_of_block(p.scale_sums));
  std::conditional_t<kCentered, ColumnSums<kElements>, NoSums> dbias(sums_of_block(p.bias_sums));
  const int64_t rows_of_block = blockDim.x >> p.rows.lane_bits;
  for (int64_t turn = blockIdx.x; turn * rows_of_block < p.rows.count; turn += gridDim.x) {
    const Place at = place_of(p.rows, turn, kElements);
    GradRow<kCentered, T, kElements>(p, at).run(dscale, dbias, turn == blockIdx.x);
  }
  // Threads without a row in the block's first turn have sums too: zeros.
  Place columns = place_of(p.rows, 0, kElements);
  columns.width = p.rows.width;
  dscale.finish(columns, p.rows.width);
  dbias.finish(columns, p.rows.width);
}

}  // namespace

#define TESSERA_NORM(name, centered, type, elements)                                          \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 4) name(const NormParameters p) { \
    norm<centered, type, elements>(p);                                                        \
  }
TESSERA_NORM(rms_norm_f32, false, float, 4)
TESSERA_NORM(rms_norm_f32_unaligned, false, float, 1)
TESSERA_NORM(rms_norm_bf16, false, bf16, 8)
TESSERA_NORM(rms_norm_bf16_unaligned, false, bf16, 1)
TESSERA_NORM(layer_norm_f32, true, float, 4)
TESSERA_NORM(layer_norm_f32_unaligned, true, float, 1)
TESSERA_NORM(layer_norm_bf16, true, bf16, 8)
TESSERA_NORM(layer_norm_bf16_unaligned, true, bf16, 1)
#undef TESSERA_NORM

#define TESSERA_NORM_GRAD(name, centered, type, elements)                \
  extern "C" __global__ void __launch_bounds__(                          \
      kRowThreads, centered ? kLayerNormGradBlocks : kRmsNormGradBlocks) \
      name(const NormGradParameters p) {                                 \
    norm_grad<centered, type, elements>(p);                              \
  }
TESSERA_NORM_GRAD(rms_norm_grad_f32, false, float, 4)
TESSERA_NORM_GRAD(rms_norm_grad_f32_unaligned, false, float, 1)
TESSERA_NORM_GRAD(rms_norm_grad_bf16, false, bf16, 8)
TESSERA_NORM_GRAD(rms_norm_grad_bf16_unaligned, false, bf16, 1)
TESSERA_NORM_GRAD(layer_norm_grad_f32, true, float, 4)
TESSERA_NORM_GRAD(layer_norm_grad_f32_unaligned, true, float, 1)
TESSERA_NORM_GRAD(layer_norm_grad_bf16, true, bf16, 8)
TESSERA_NORM_GRAD(layer_norm_grad_bf16_unaligned, true, bf16, 1)
#undef TESSERA_NORM_GRAD

// A thread adds every kSumParts-th block of its column; then one adds these parts in order.
extern "C" __global__ void __launch_bounds__(kSumColumns* kSumParts)
    norm_column_sums(const ColumnSumParameters p) {
  const int column_of_block = threadIdx.x % kSumColumns, part = threadIdx.x / kSumColumns;
  const int64_t column = int64_t{blockIdx.x} * kSumColumns + column_of_block;
  const float* const sums = blockIdx.y == 0 ? p.sums[0] : p.sums[1];
  float sum = 0.0f;
  if (column < p.width) {
#pragma unroll 4
    for (int64_t block = part; block < p.blocks; block += kSumParts)
      sum += sums[block * p.width + column];
  }
  __shared__ float parts[kSumParts][kSumColumns];
  parts[part][column_of_block] = sum;
  __syncthreads();
  if (part != 0 || column >= p.width) return;
  for (int i = 1; i < kSumParts; ++i) sum += parts[i][column_of_block];
  void* const to = blockIdx.y == 0 ? p.to[0] : p.to[1];
  if (p.narrow) {
    static_cast<bf16*>(to)[column] = from_float<bf16>(sum);
  } else {
    static_cast<float*>(to)[column] = sum;
  }
}

}  // namespace tessera::cuda
