// SPDX-License-Identifier: Apache-2.0
// A batch of matrix products with an epilogue, by cuBLASLt or by kernels of our own (the reference
// product).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/devices/contraction.h"
#include "core/ops/float8_format.h"
#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/timing.h"
#include "plugins/cuda/gemm/product_parameters.h"

namespace tessera::cuda {

// The operation on a product in f32 before it is stored. `adds` another matrix, which may be C
// itself, and cannot be combined; `saves_operand` goes with an activation that is no gradient.
struct Epilogue {
  Activation activation = Activation::kNone;
  bool bias = false;
  bool saves_operand = false;
  bool adds = false;
  bool operator==(const Epilogue&) const = default;
  bool empty() const { return *this == Epilogue(); }
  // Whether it multiplies by the activation's slope at another matrix.
  bool takes_slopes() const {
    return activation == Activation::kGeluGradient || activation == Activation::kSiluGradient;
  }
};

// The 8-bit floats of core/ops/float8_format.h.
enum class Float8 { kE4M3, kE5M2 };
constexpr Float8Format format_of(Float8 format) { return format == Float8::kE4M3 ? kE4M3 : kE5M2; }

// The formats of operands that are 8-bit floats.
struct Fp8Formats {
  Float8 a = Float8::kE4M3, b = Float8::kE4M3;
  bool operator==(const Fp8Formats&) const = default;
};

// `batches` products of one shape; strides in elements from one to the next.
struct ProductShape {
  GemmShape matrices;
  // In place of matrices.input: A is not transposed and B is, rows of both and their distances are
  // multiples of 16 bytes (fp8_product.h makes them so).
  std::optional<Fp8Formats> fp8;
  int64_t batches = 1;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  Epilogue epilogue;

  // Elements from the first to behind the last of an operand.
  int64_t a_extent() const;
  int64_t b_extent() const;
  int64_t c_extent() const;
  int64_t input_bytes() const;  // Bytes of an element of A or B.
  // "bf16->f32 m=8 n=16 k=4 a=4n b=16n c=16 batches=1 strides=0,0,0 epilogue=bias,gelu";
  // "e5m2·e4m3->bf16 …".
  std::string text() const;
};

// Fields as in ProductParameters; null where the epilogue has no such operand. Scratch is aligned
// to 64 bytes.
struct ProductOperands {
  CUdeviceptr a = 0, b = 0, c = 0;
  CUdeviceptr bias = 0, slopes = 0, addend = 0, saved = 0;
  CUdeviceptr scratch = 0;
  CUdeviceptr inverse_scales = 0;      // Scale of 8-bit A, and at kScaleStride that of B; f32.
  CUdeviceptr a_amax = 0, b_amax = 0;  // For rounding operands to 8 bits (fp8_product.h).
};

class Product {
 public:
  virtual ~Product() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual std::string_view implementation() const { return kOwnKernels; }
  virtual void enqueue(CUstream stream, const ProductOperands& operands) = 0;
};

inline constexpr const char* kGemmVariable = "TESSERA_CUDA_GEMM";
// Words of that environment variable, separated by commas:
//   reference | cublaslt  which product; the default is cuBLASLt where it is usable
//   plain                 epilogues run as a pass of their own
//   untimed               the first candidate of cuBLASLt's heuristic, without timing any
struct ProductSettings {
  enum class Kind { kDefault, kReference, kCublasLt };
  Kind kind = Kind::kDefault;
  bool plain = false;
  bool untimed = false;
};
// Error for an unknown word.
ProductSettings product_settings();

inline constexpr int64_t kMostBatchBlocks = 65535;  // In the third dimension of a grid.

// Kernels of product.cu: any size, stride and alignment. For 8-bit floats: kernels of
// fp8_product.cu.
std::unique_ptr<Product> make_reference_product(Context& context, const ProductShape& shape);

// Numbers for timings: f32 or bf16 (4 or 2 bytes) in [-1/2, 1/2), or 8-bit floats.
void fill_with_random(Context& context, CUstream stream, CUdeviceptr to, int64_t elements,
                      int64_t element_bytes);
// Operands of a product with such numbers; some are null if the memory is not complete.
ProductOperands random_operands(Context& context, TrialMemory& memory, CUstream stream,
                                const ProductShape& shape, int64_t scratch_bytes);

}  // namespace tessera::cuda
