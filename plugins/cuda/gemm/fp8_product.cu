// SPDX-License-Identifier: Apache-2.0
// Operands as 8-bit floats, 3 bytes an element, and their products where cuBLASLt has none.
//
// A number is rounded with f32 arithmetic, so that a GPU of any architecture gives the bits of the
// reference: adding 2^(e+23-d) to a number with exponent e, where d is the number of digits of the
// format's fraction, rounds to its spacing, and subtracting it again is exact. A factor then moves
// the format's exponents to those of f32, subnormal numbers included, and the code is the upper
// bits.
#include "plugins/cuda/gemm/fp8_parameters.h"
#include "plugins/cuda/gemm/product_result.cuh"
#include "plugins/cuda/gemm/product_tile.cuh"

namespace tessera::cuda {
namespace {

// -- Codes of 8 bits ----------------------------------------------------------------------------

// Fraction bits of f32 that the format lacks.
__device__ int missing_digits(const Float8Format& format) { return 23 - format.digits; }
// The exponent bias of f32 less that of the format.
__device__ int bias_difference(const Float8Format& format) { return 126 + format.min_exponent; }

// Rounds numbers times the largest power of two for which amax is in the range of the format. If
// one of them is not finite, neither is amax: then the inverse scale is NaN, and with it every
// product.
class Quantizer {
 public:
  __device__ Quantizer(const Float8Format& format, float amax)
      : missing_digits_(missing_digits(format)),
        largest_(largest(format)),
        factor_(power_of_two(-bias_difference(format))),
        least_(__float_as_uint(power_of_two(format.min_exponent))),
        digits_shift_(static_cast<uint32_t>(missing_digits_) << 23) {
    const uint32_t bits = __float_as_uint(fmaxf(amax, kLeastAmax));
    const int above = (bits & 0x7fffff) > 0x600000 ? 1 : 0;  // Than 1.75·2^exponent.
    const int exponent = format.max_exponent - (static_cast<int>(bits >> 23) - 127) - above;
    const bool is_finite = fabsf(amax) < __uint_as_float(0x7f800000);
    scale_ = is_finite ? power_of_two(exponent) : 0.0f;
    inverse_ = is_finite ? power_of_two(-exponent) : __uint_as_float(0x7fc00000);
  }

  __device__ float inverse_scale() const { return inverse_; }

  __device__ uint32_t code(float x) const {
    const float scaled = x * scale_;
    const float magnitude = fminf(fabsf(scaled), largest_);
    const uint32_t exponent = max(__float_as_uint(magnitude) & 0x7f800000u, least_);
    const float large = __uint_as_float(exponent + digits_shift_);  // 2^(e+23-d)
    const float rounded = __fsub_rn(__fadd_rn(magnitude, large), large);
    const uint32_t code = __float_as_uint(__fmul_rn(rounded, factor_)) >> missing_digits_;
    return code | (__float_as_uint(scaled) >> 24 & 0x80u);
  }
  // The first in the lowest byte.
  __device__ uint32_t codes(float x0, float x1, float x2, float x3) const {
    return code(x0) | code(x1) << 8 | code(x2) << 16 | code(x3) << 24;
  }

 private:
  int missing_digits_;
  float scale_, inverse_, largest_, factor_;
  uint32_t least_, digits_shift_;  // In the exponent bits of f32.
};

// The value of the code in the lowest byte, which must be a number.
__device__ float decoded(const Float8Format& format, uint32_t code) {
  const uint32_t bits = (code & 0x7f) << missing_digits(format) | (code & 0x80) << 24;
  return __uint_as_float(bits) * power_of_two(bias_difference(format));
}

// -- Rounding an operand ------------------------------------------------------------------------

template <typename T>
__device__ Quantizer quantizer_of(const QuantizeParameters& p) {
  const Quantizer quantizer(p.format, to_float(*static_cast<const T*>(p.amax)));
  if (thread_number() == 0 && blockIdx.z == 0) *p.inverse_scale = quantizer.inverse_scale();
  return quantizer;
}

constexpr int kCodes = 16;  // Codes that a thread stores at once.

template <typename T>
__device__ void quantize_lines(const QuantizeParameters& p) {
  const Quantizer quantizer = quantizer_of<T>(p);
  const int lanes = 1 << p.lanes_shift, lane = threadIdx.x & (lanes - 1);
  const int64_t step = thread_count() >> p.lanes_shift;
  for (int64_t r = thread_number() >> p.lanes_shift; r < p.batches * p.rows; r += step) {
    const int64_t batch = p.batches == 1 ? 0 : r / p.rows, row = r - batch * p.rows;
    const T* const line =
        static_cast<const T*>(p.from) + batch * p.from_stride + row * p.from_leading;
    uint8_t* const to = p.to + batch * p.to_stride + row * p.padded_depth;
#pragma unroll 1
    for (int depth = lane * kCodes; depth < p.padded_depth; depth += lanes * kCodes) {
      float x[kCodes];
      if (p.aligned && depth + kCodes <= p.depth) {
        load_vector(line + depth, x);
      } else {
#pragma unroll
        for (int j = 0; j < kCodes; ++j)
          x[j] = depth + j < p.depth ? to_float(line[depth + j]) : 0.0f;
      }
      uint32_t words[kCodes / 4];
#pragma unroll
      for (int j = 0; j < kCodes; j += 4)
        words[j / 4] = quantizer.codes(x[j], x[j + 1], x[j + 2], x[j + 3]);
      store_16_bytes(to + depth, words);
    }
  }
}

// A tile of rows, in words of four codes along the depth. Its lines are padded by a word, so that
// neighbours are in other banks.
constexpr int kWords = kQuantizeDepth / 4;
using QuantizedTile = uint32_t[kQuantizeRows][kWords + 1];

// Four lines along the rows, kVector<T> of each, are so many words of the tile.
template <typename T>
__device__ void quantize_tile(const QuantizeParameters& p, const Quantizer& quantizer,
                              int64_t batch, int row, int depth, QuantizedTile& tile) {
  constexpr int kWidth = kVector<T>, kGroups = kQuantizeRows / kWidth;
#pragma unroll 1
  for (int i = threadIdx.x; i < kGroups * kWords; i += blockDim.x) {
    const int first = i % kGroups * kWidth, word = i / kGroups;
    float x[4][kWidth];
#pragma unroll
    for (int line = 0; line < 4; ++line) {
      const int d = depth + 4 * word + line;
      const T* const from =
          static_cast<const T*>(p.from) + batch * p.from_stride + d * p.from_leading + row + first;
      if (p.aligned && d < p.depth && row + first + kWidth <= p.rows) {
        load_vector(from, x[line]);
      } else {
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
          x[line][j] = d < p.depth && row + first + j < p.rows ? to_float(from[j]) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      tile[first + j][word] = quantizer.codes(x[0][j], x[1][j], x[2][j], x[3][j]);
  }
}

__device__ void store_tile(const QuantizeParameters& p, int64_t batch, int row, int depth,
                           const QuantizedTile& tile) {
  constexpr int kChunks = kQuantizeDepth / kCodes;
#pragma unroll 1
  for (int i = threadIdx.x; i < kQuantizeRows * kChunks; i += blockDim.x) {
    const int r = i / kChunks, chunk = i % kChunks, d = depth + chunk * kCodes;
    if (row + r >= p.rows || d >= p.padded_depth) continue;
    const uint32_t* const words = &tile[r][4 * chunk];
    const uint32_t four[4] = {words[0], words[1], words[2], words[3]};
    store_16_bytes(p.to + batch * p.to_stride + int64_t{row + r} * p.padded_depth + d, four);
  }
}

template <typename T>
__device__ void quantize_transposed(const QuantizeParameters& p) {
  __shared__ QuantizedTile tile;
  const Quantizer quantizer = quantizer_of<T>(p);
  const int tiles = (p.padded_depth + kQuantizeDepth - 1) / kQuantizeDepth;
  const int row = static_cast<int>(blockIdx.x) / tiles * kQuantizeRows;
  const int depth = static_cast<int>(blockIdx.x) % tiles * kQuantizeDepth;
  for (int64_t batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
    quantize_tile<T>(p, quantizer, batch, row, depth, tile);
    __syncthreads();
    store_tile(p, batch, row, depth, tile);
    __syncthreads();  // Before the tile is overwritten.
  }
}

// -- Products -----------------------------------------------------------------------------------

// Lines of codes along the depth, for tiles of bf16, which has all values of both formats.
struct CodeMatrix {
  const uint8_t* data;
  int64_t leading;
  int lines, length;  // A multiple of 16.
  Float8Format format;

  template <int kThreads, typename AnyTile>
  __device__ void convert(AnyTile& tile, Origin origin) const {
    constexpr int kChunks = AnyTile::kLineLength / kCodes;
#pragma unroll
    for (int chunk = threadIdx.x; chunk < AnyTile::kLineCount * kChunks; chunk += kThreads) {
      const int line = chunk / kChunks, position = chunk % kChunks * kCodes;
      uint4 codes = make_uint4(0, 0, 0, 0);
      if (origin.line + line < lines && origin.position + position < length)
        codes = *reinterpret_cast<const uint4*>(data + (origin.line + line) * leading +
                                                origin.position + position);
      uint32_t* const to =
          reinterpret_cast<uint32_t*>(&tile.elements[line * AnyTile::kPitch + position]);
      const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
      for (int i = 0; i < kCodes / 2; ++i) {
        const uint32_t pair = words[i / 2] >> i % 2 * 16;
        const float x[2] = {decoded(format, pair), decoded(format, pair >> 8)};
        Pack<bf16, 2> narrow;
        narrow.narrow(x);
        narrow.store(reinterpret_cast<bf16*>(to + i));
      }
    }
  }
};

template <int kSize>
__device__ void fp8_products(const Fp8Parameters& p) {
  using Method = Bf16Product<kSize, false, true>;
  __shared__ Shared<Method> shared;
  const ProductParameters& of = p.product;
  const float a_scale = p.inverse_scales[0], b_scale = p.inverse_scales[kScaleStride];
  for (int64_t batch = blockIdx.z; batch < of.batches; batch += gridDim.z) {
    const CodeMatrix a{static_cast<const uint8_t*>(of.a) + batch * of.a_stride, of.a_leading, of.m,
                       of.k, p.a};
    const CodeMatrix b{static_cast<const uint8_t*>(of.b) + batch * of.b_stride, of.b_leading, of.n,
                       of.k, p.b};
    product_tile<Method>(of, batch, a, b, shared, [&](auto& sums) {
#pragma unroll
      for (auto& rows : sums)
#pragma unroll
        for (auto& columns : rows)
#pragma unroll
          for (float& sum : columns) sum = sum * a_scale * b_scale;
    });
  }
}

}  // namespace

// fp8_quantize_<dtype>_<lines: n along the depth, t along the rows>.
#define TESSERA_QUANTIZE(name, function, T)                               \
  extern "C" __global__ void __launch_bounds__(256)                       \
      fp8_quantize_##name(const __grid_constant__ QuantizeParameters p) { \
    function<T>(p);                                                       \
  }
TESSERA_QUANTIZE(bf16_n, quantize_lines, bf16)
TESSERA_QUANTIZE(f32_n, quantize_lines, float)
TESSERA_QUANTIZE(bf16_t, quantize_transposed, bf16)
TESSERA_QUANTIZE(f32_t, quantize_transposed, float)

#define TESSERA_FP8_PRODUCT(size, threads, blocks)                  \
  extern "C" __global__ void __launch_bounds__(threads, blocks)     \
      product_fp8_##size(const __grid_constant__ Fp8Parameters p) { \
    fp8_products<size>(p);                                          \
  }
TESSERA_FP8_PRODUCT(32, 32, 1)
TESSERA_FP8_PRODUCT(128, 256, 2)

}  // namespace tessera::cuda
