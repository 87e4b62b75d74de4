// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/product_trial.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/run_graph.h"
#include "core/devices/reference/array.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/gemm/make_product.h"

namespace tessera::cuda {
namespace {

struct HostOperands {
  std::vector<double> a, b, c, bias, slopes, addend, saved;
};

Type flat_type(DType dtype, size_t elements) {
  return make_type(dtype, {{"element", static_cast<int64_t>(elements), {}}});
}

HostOperands host_operands(const ProductShape& shape) {
  uint32_t state = 12345;
  const auto random = [&](int64_t elements, DType dtype) {
    std::vector<double> values(static_cast<size_t>(elements));
    for (double& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<double>(state >> 8) / (1 << 23) - 1.0;
    }
    return rounded(flat_type(dtype, values.size()), values);
  };
  const DType input = shape.matrices.input, output = shape.matrices.output;
  HostOperands operands;
  operands.a = random(shape.a_extent(), input);
  operands.b = random(shape.b_extent(), input);
  operands.c = random(shape.c_extent(), output);
  operands.bias = random(shape.matrices.n, output);
  operands.slopes = random(shape.c_extent(), output);
  operands.addend = random(shape.c_extent(), output);
  operands.saved = random(shape.c_extent(), output);
  return operands;
}

class DeviceVector {
 public:
  DeviceVector(Device& device, Stream& stream, DType dtype, const std::vector<double>& values,
               int64_t offset)
      : device_(device),
        dtype_(dtype),
        elements_(values.size()),
        bytes_((static_cast<int64_t>(values.size()) + offset) * dtype_bytes(dtype)),
        memory_(device.allocate(bytes_)),
        begin_(memory_ + offset * dtype_bytes(dtype)) {
    stream.copy_from_host(begin_, encoded(dtype, values));
  }
  ~DeviceVector() { device_.release(memory_, bytes_); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  CUdeviceptr address() const { return pointer_of(begin_); }
  std::vector<double> read(Stream& stream) const {
    std::vector<std::byte> bytes(elements_ * static_cast<size_t>(dtype_bytes(dtype_)));
    stream.copy_to_host(bytes, begin_);
    stream.synchronize();
    return decode_values(flat_type(dtype_, elements_), bytes.data());
  }

 private:
  Device& device_;
  DType dtype_;
  size_t elements_;
  int64_t bytes_;
  DeviceAddress memory_, begin_;
};

constexpr double kGeluSlope = 0.7978845608028654, kGeluCubic = 0.044715;

double activation_of(Activation activation, double x, double slope_at) {
  const double t = std::tanh(kGeluSlope * (slope_at + kGeluCubic * slope_at * slope_at * slope_at));
  const double s = 1.0 / (1.0 + std::exp(-slope_at));
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGelu:
      return 0.5 * x * (1.0 + t);
    case Activation::kSilu:
      return x * s;
    case Activation::kSiluGradient:
      return x * s * (1.0 + slope_at * (1.0 - s));
    case Activation::kGeluGradient:
      break;
  }
  return x * (0.5 * (1.0 + t) + 0.5 * slope_at * (1.0 - t * t) * kGeluSlope *
                                    (1.0 + 3.0 * kGeluCubic * slope_at * slope_at));
}

double element_of(const std::vector<double>& values, int64_t begin, const MatrixLayout& layout,
                  int64_t row, int64_t column) {
  const int64_t at =
      layout.transposed ? column * layout.leading + row : row * layout.leading + column;
  return values[static_cast<size_t>(begin + at)];
}

void finish_element(const ProductShape& shape, const HostOperands& operands, double sum, size_t i,
                    int64_t column, ProductResult& result) {
  const Epilogue& epilogue = shape.epilogue;
  if (epilogue.bias) sum += operands.bias[static_cast<size_t>(column)];
  if (epilogue.saves_operand) result.saved[i] = sum;
  sum = activation_of(epilogue.activation, sum, epilogue.takes_slopes() ? operands.slopes[i] : sum);
  result.c[i] = epilogue.adds ? operands.addend[i] + sum : sum;
}

std::string vector_difference(const std::vector<double>& got, const std::vector<double>& expected,
                              double tolerance, std::string_view name) {
  double largest = 1e-3;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(got[i] - expected[i]) <= tolerance * largest))
      return fmt::format("{}[{}]: got {}, expected {}", name, i, got[i], expected[i]);
  return "";
}

}  // namespace

std::vector<OpCase> fused_cases(bool fp8) {
  std::vector<OpCase> rows = fused_product_cases({.fp8 = fp8});
  if (!fp8) std::ranges::move(fused_packed_cases(), std::back_inserter(rows));
  return rows;
}

std::unique_ptr<Device> make_gpu() { return std::move(make_cuda_devices(1, 1).front()); }

ProductShape dense_shape(DType input, DType output, int64_t m, int64_t n, int64_t k,
                         const std::string& layouts, int64_t pad, int64_t batches) {
  ProductShape shape;
  const auto layout = [&](char kind, int64_t rows, int64_t columns) {
    const bool transposed = kind == 't';
    return MatrixLayout{(transposed ? rows : columns) + pad, transposed};
  };
  GemmShape& s = shape.matrices;
  s.m = m, s.n = n, s.k = k;
  s.a = layout(layouts[0], m, k), s.b = layout(layouts[1], k, n);
  s.c_leading = n + pad;
  s.input = input, s.output = output;
  shape.batches = batches;
  if (batches == 1) return shape;
  shape.a_stride = (s.a.transposed ? k : m) * s.a.leading;
  shape.b_stride = (s.b.transposed ? n : k) * s.b.leading;
  shape.c_stride = m * s.c_leading;
  return shape;
}

ProductResult run_product(Device& device, const ProductShape& shape,
                          const ProductSettings& settings, int64_t offset) {
  const HostOperands host = host_operands(shape);
  const DType input = shape.matrices.input, output = shape.matrices.output;
  const std::unique_ptr<Product> product = make_product(context_of(device), shape, settings);
  const std::unique_ptr<Stream> stream = device.make_stream(StreamUse::kCompute);
  const DeviceVector a(device, *stream, input, host.a, offset);
  const DeviceVector b(device, *stream, input, host.b, offset);
  const DeviceVector c(device, *stream, output, host.c, offset);
  const DeviceVector bias(device, *stream, output, host.bias, offset);
  const DeviceVector slopes(device, *stream, output, host.slopes, offset);
  const DeviceVector addend(device, *stream, output, host.addend, offset);
  const DeviceVector saved(device, *stream, output, host.saved, offset);
  const int64_t scratch_bytes = product->scratch_bytes();
  const DeviceAddress scratch = device.allocate(scratch_bytes);
  const Epilogue& epilogue = shape.epilogue;
  context_of(device).make_current();
  product->enqueue(native(*stream), {.a = a.address(),
                                     .b = b.address(),
                                     .c = c.address(),
                                     .bias = epilogue.bias ? bias.address() : 0,
                                     .slopes = epilogue.takes_slopes() ? slopes.address() : 0,
                                     .addend = epilogue.adds ? addend.address() : 0,
                                     .saved = epilogue.saves_operand ? saved.address() : 0,
                                     .scratch = pointer_of(scratch)});
  ProductResult result{c.read(*stream), saved.read(*stream)};
  device.release(scratch, scratch_bytes);
  return result;
}

ProductResult expected_product(const ProductShape& shape) {
  const HostOperands operands = host_operands(shape);
  const GemmShape& s = shape.matrices;
  ProductResult result{operands.c, operands.saved};
  for (int64_t batch = 0; batch < shape.batches; ++batch) {
    for (int64_t row = 0; row < s.m; ++row) {
      for (int64_t column = 0; column < s.n; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < s.k; ++k)
          sum += element_of(operands.a, batch * shape.a_stride, s.a, row, k) *
                 element_of(operands.b, batch * shape.b_stride, s.b, k, column);
        const auto i = static_cast<size_t>(batch * shape.c_stride + row * s.c_leading + column);
        finish_element(shape, operands, sum, i, column, result);
      }
    }
  }
  return result;
}

std::vector<Epilogue> all_epilogues() {
  std::vector<Epilogue> all = {{.adds = true}, {.bias = true}};
  for (const Activation activation : {Activation::kGelu, Activation::kSilu})
    for (const bool bias : {false, true})
      for (const bool saves : {false, true})
        all.push_back({.activation = activation, .bias = bias, .saves_operand = saves});
  all.push_back({.activation = Activation::kGeluGradient});
  all.push_back({.activation = Activation::kSiluGradient});
  return all;
}

std::string product_difference(Device& device, const ProductShape& shape,
                               const ProductSettings& settings, int64_t offset) {
  const ProductResult got = run_product(device, shape, settings, offset);
  const ProductResult expected = expected_product(shape);
  // bf16 has 8 bits; a separate epilogue rounds twice.
  const double tolerance = shape.matrices.output == DType::kBF16 ? 0x1p-7 : 4e-6;
  std::string difference = vector_difference(got.c, expected.c, tolerance, "C");
  if (difference.empty())
    difference = vector_difference(got.saved, expected.saved, tolerance, "saved");
  return difference.empty() ? "" : shape.text() + ": " + difference;
}

}  // namespace tessera::cuda
