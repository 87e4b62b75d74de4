// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/product.h"

#include <string_view>

#include <fmt/format.h>

#include "plugins/cuda/device/setting_words.h"
#include "plugins/cuda/gemm/fp8_parameters.h"

namespace tessera::cuda {
namespace {

int64_t matrix_extent(const MatrixLayout& layout, int64_t rows, int64_t columns) {
  if (rows == 0 || columns == 0) return 0;
  const int64_t lines = layout.transposed ? columns : rows;
  return (lines - 1) * layout.leading + (layout.transposed ? rows : columns);
}

int64_t batch_extent(int64_t matrix, int64_t stride, int64_t batches) {
  return batches == 0 || matrix == 0 ? 0 : (batches - 1) * stride + matrix;
}

std::string input_text(const ProductShape& shape) {
  if (!shape.fp8) return std::string(dtype_name(shape.matrices.input));
  const auto name = [](Float8 format) { return format == Float8::kE4M3 ? "e4m3" : "e5m2"; };
  return fmt::format("{}·{}", name(shape.fp8->a), name(shape.fp8->b));
}

std::string epilogue_text(const Epilogue& epilogue) {
  constexpr std::string_view kNames[] = {"none", "GELU", "SiLU", "GELU gradient", "SiLU gradient"};
  std::string text(kNames[static_cast<size_t>(epilogue.activation)]);
  if (epilogue.bias) text += ",bias";
  if (epilogue.saves_operand) text += ",saved";
  if (epilogue.adds) text += ",adds";
  return text;
}

}  // namespace

int64_t ProductShape::a_extent() const {
  return batch_extent(matrix_extent(matrices.a, matrices.m, matrices.k), a_stride, batches);
}
int64_t ProductShape::b_extent() const {
  return batch_extent(matrix_extent(matrices.b, matrices.k, matrices.n), b_stride, batches);
}
int64_t ProductShape::c_extent() const {
  return batch_extent(matrix_extent({matrices.c_leading, false}, matrices.m, matrices.n), c_stride,
                      batches);
}

int64_t ProductShape::input_bytes() const { return fp8 ? 1 : dtype_bytes(matrices.input); }

std::string ProductShape::text() const {
  const GemmShape& s = matrices;
  return fmt::format(
      "{}->{} m={} n={} k={} a={}{} b={}{} c={} batches={} strides={},{},{} "
      "epilogue={}",
      input_text(*this), dtype_name(s.output), s.m, s.n, s.k, s.a.leading,
      s.a.transposed ? 't' : 'n', s.b.leading, s.b.transposed ? 't' : 'n', s.c_leading, batches,
      a_stride, b_stride, c_stride, epilogue_text(epilogue));
}

ProductSettings product_settings() {
  ProductSettings settings;
  for (const std::string& word :
       setting_words(kGemmVariable, {"reference", "cublaslt", "plain", "untimed"})) {
    if (word == "reference")
      settings.kind = ProductSettings::Kind::kReference;
    else if (word == "cublaslt")
      settings.kind = ProductSettings::Kind::kCublasLt;
    else
      (word == "plain" ? settings.plain : settings.untimed) = true;
  }
  return settings;
}

void fill_with_random(Context& context, CUstream stream, CUdeviceptr to, int64_t elements,
                      int64_t element_bytes) {
  launch(context, stream, context.function("product", "product_fill"),
         elementwise_shape(context, elements), to, elements, static_cast<int32_t>(element_bytes));
}

ProductOperands random_operands(Context& context, TrialMemory& memory, CUstream stream,
                                const ProductShape& shape, int64_t scratch_bytes) {
  const Epilogue& epilogue = shape.epilogue;
  const auto made = [&](bool needed, int64_t elements, int64_t bytes) -> CUdeviceptr {
    if (!needed) return 0;
    const CUdeviceptr address = memory.allocate(elements * bytes);
    if (address != 0) fill_with_random(context, stream, address, elements, bytes);
    return address;
  };
  const int64_t input = shape.input_bytes(), output = dtype_bytes(shape.matrices.output);
  return {.a = made(true, shape.a_extent(), input),
          .b = made(true, shape.b_extent(), input),
          .c = made(true, shape.c_extent(), output),
          .bias = made(epilogue.bias, shape.matrices.n, output),
          .slopes = made(epilogue.takes_slopes(), shape.c_extent(), output),
          .addend = made(epilogue.adds, shape.c_extent(), output),
          .saved = made(epilogue.saves_operand, shape.c_extent(), output),
          .scratch = memory.allocate(scratch_bytes),
          .inverse_scales = made(shape.fp8.has_value(), kScaleStride + 1, 4)};
}

}  // namespace tessera::cuda
