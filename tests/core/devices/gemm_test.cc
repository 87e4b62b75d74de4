// SPDX-License-Identifier: Apache-2.0
// GEMM on every path of this processor level, and the AMX path on emulated tiles: values against a
// plain loop, and that the bits of a row depend only on the row, B and the path.
#include "core/devices/cpu/gemm/gemm.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/run_graph.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/gemm/amx_microkernel.h"
#include "core/devices/cpu/gemm/gemm_kernels.h"
#include "core/devices/cpu/processor.h"
#include "core/graph/graph.h"
#include "core/ops/einsum.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_tiles.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

struct Path {
  std::string name;
  DType input;
  GemmKernels kernels;
};

// The paths of this machine, and the AMX path on emulated tiles.
std::vector<Path> all_paths() {
  std::vector<Path> paths = {{"f32", DType::kF32, gemm_kernels(GemmPath::kF32)},
                             {"widened", DType::kBF16, gemm_kernels(GemmPath::kWidenedBf16)}};
  if (cpu_level() >= CpuLevel::kAvx512Bf16)
    paths.push_back({"pairs", DType::kBF16, gemm_kernels(GemmPath::kBf16Pairs)});
  if (cpu_level() >= CpuLevel::kAmx)
    paths.push_back({"tiles", DType::kBF16, gemm_kernels(GemmPath::kBf16Tiles)});
  GemmKernels emulated = amx_packing();
  emulated.multiply = amx_multiply<EmulatedTiles>;
  paths.push_back({"emulated tiles", DType::kBF16, emulated});
  return paths;
}

// A matrix with gaps between its rows.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, bool transposed, int64_t gap)
      : dtype_(dtype), layout_{(transposed ? rows : columns) + gap, transposed} {
    bytes_.resize(
        static_cast<size_t>(layout_.leading * (transposed ? columns : rows) * dtype_bytes(dtype)));
  }
  const MatrixLayout& layout() const { return layout_; }
  std::byte* data() { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  int64_t elements() const { return static_cast<int64_t>(bytes_.size()) / dtype_bytes(dtype_); }

  int64_t index(int64_t row, int64_t column) const {
    return layout_.transposed ? column * layout_.leading + row : row * layout_.leading + column;
  }
  float get(int64_t row, int64_t column) const { return element(index(row, column)); }
  float element(int64_t index) const {
    if (dtype_ == DType::kF32) return reinterpret_cast<const float*>(bytes_.data())[index];
    return static_cast<float>(reinterpret_cast<const BFloat16*>(bytes_.data())[index]);
  }
  void set_element(int64_t index, float value) {
    if (dtype_ == DType::kF32) {
      reinterpret_cast<float*>(bytes_.data())[index] = value;
    } else {
      reinterpret_cast<BFloat16*>(bytes_.data())[index] = BFloat16(value);
    }
  }
  // Gaps are NaN, which must not reach a result.
  void fill(int64_t rows, int64_t columns, double step) {
    for (int64_t i = 0; i < elements(); ++i)
      set_element(i, std::numeric_limits<float>::quiet_NaN());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        set_element(index(i, j), static_cast<float>(std::sin(step * static_cast<double>(i) +
                                                             0.7 * static_cast<double>(j))));
  }

 private:
  DType dtype_;
  MatrixLayout layout_;
  std::vector<std::byte> bytes_;
};

struct Case {
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  DType output = DType::kF32;
};

struct Product {
  Product(const Path& path, const Case& c)
      : a(path.input, c.m, c.k, c.a_transposed, 3),
        b(path.input, c.k, c.n, c.b_transposed, 5),
        result(c.output, c.m, c.n, false, 7) {
    a.fill(c.m, c.k, 1.3);
    b.fill(c.k, c.n, 0.9);
    for (int64_t i = 0; i < result.elements(); ++i) result.set_element(i, -1.0f);
  }
  Matrix a, b, result;
};

// `adds`: continues the sums in the result.
void multiply(const Path& path, const Case& c, Product& p, bool adds = false) {
  const Gemm gemm({.m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .a = p.a.layout(),
                   .b = p.b.layout(),
                   .c_leading = p.result.layout().leading,
                   .input = path.input,
                   .output = c.output,
                   .adds = adds},
                  path.kernels);
  // Packed blocks must not depend on the contents of scratch memory.
  const auto bytes = static_cast<size_t>(gemm.scratch_bytes() + 63) / 64 * 64;
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(64, bytes))), std::free);
  std::memset(scratch.get(), 0xff, bytes);
  gemm.run(p.a.data(), p.b.data(), p.result.data(), scratch.get());
}

// The largest difference from a plain loop in f64, beyond the rounding of the result. With many
// rows, only some of each panel and block are checked.
double worst_error(const Case& c, const Product& p) {
  double worst = 0.0;
  const int64_t step = c.m > 200 ? 17 : 1;
  for (int64_t i = 0; i < c.m; i += step) {
    for (int64_t j = 0; j < p.result.layout().leading; ++j) {
      double sum = j < c.n ? 0.0 : -1.0;  // The gap between rows stays as it was.
      for (int64_t k = 0; j < c.n && k < c.k; ++k)
        sum += static_cast<double>(p.a.get(i, k)) * p.b.get(k, j);
      const double got = p.result.element(i * p.result.layout().leading + j);
      const double slack = c.output == DType::kBF16 ? std::abs(sum) / 256.0 : 0.0;
      const double error = std::abs(got - sum) - slack;
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    }
  }
  return worst;
}

std::string text(const Path& path, const Case& c) {
  return fmt::format("{} {}x{}x{}{}{} -> {}", path.name, c.m, c.n, c.k, c.a_transposed ? " A'" : "",
                     c.b_transposed ? " B'" : "", dtype_name(c.output));
}

template <typename Visit>
void for_each_layout(const Path& path, int64_t m, int64_t n, int64_t k, const Visit& visit) {
  for (const DType output : {DType::kF32, DType::kBF16}) {
    if (path.input == DType::kF32 && output == DType::kBF16) continue;
    for (const int flags : {0, 1, 2, 3}) {
      const Case c{.m = m,
                   .n = n,
                   .k = k,
                   .a_transposed = (flags & 1) != 0,
                   .b_transposed = (flags & 2) != 0,
                   .output = output};
      INFO(text(path, c));
      visit(c);
    }
  }
}

TEST_CASE("every path multiplies parts of matrices, plain and transposed") {
  // Sizes around those of register tiles, panels and blocks, and odd depths.
  constexpr int64_t kSizes[][3] = {{1, 1, 1},    {1, 50, 65},    {3, 33, 31},  {5, 600, 24},
                                   {8, 97, 130}, {12, 32, 16},   {13, 31, 7},  {37, 50, 65},
                                   {64, 64, 64}, {121, 70, 387}, {33, 17, 771}};
  for (const Path& path : all_paths()) {
    for (const auto& [m, n, k] : kSizes) {
      for_each_layout(path, m, n, k, [&](const Case& c) {
        Product p(path, c);
        multiply(path, c, p);
        REQUIRE(worst_error(c, p) < 1e-6 * static_cast<double>(k + 20));
      });
    }
  }
}

TEST_CASE("products of several blocks in each dimension") {
  for (const Path& path : all_paths()) {
    if (path.name == "emulated tiles") continue;  // Too slow; its blocks are those of the others.
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{500, 40, 1700}, {10, 1100, 2500}}) {
      for_each_layout(path, m, n, k, [&](const Case& c) {
        Product p(path, c);
        multiply(path, c, p);
        REQUIRE(worst_error(c, p) < 1e-6 * static_cast<double>(k + 20));
      });
    }
  }
}

TEST_CASE("a product with k = 0 is zero") {
  for (const Path& path : all_paths()) {
    for (const int64_t m : {2, 20}) {
      for_each_layout(path, m, 9, 0, [&](const Case& c) {
        Product p(path, c);
        multiply(path, c, p);
        REQUIRE(worst_error(c, p) == 0.0);
      });
    }
  }
}

TEST_CASE("a row has the same bits with any number of rows and columns, and when run twice") {
  constexpr int64_t kRows = 41, kColumns = 75, kDepth = 403;
  for (const Path& path : all_paths()) {
    for_each_layout(path, kRows, kColumns, kDepth, [&](const Case& whole) {
      Product all(path, whole);
      multiply(path, whole, all);
      Product again(path, whole);
      multiply(path, whole, again);
      REQUIRE(all.result.bytes() == again.result.bytes());
      for (const int64_t rows : {1, 2, 7, 8, 9, 16, 17, 33, 40}) {
        for (const int64_t columns : {1, 16, 33, 74}) {
          Case part = whole;
          part.m = rows;
          part.n = columns;
          Product some(path, part);
          multiply(path, part, some);
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j)
              REQUIRE(some.result.get(i, j) == all.result.get(i, j));
        }
      }
    });
  }
}

TEST_CASE("sums that are continued have the bits of one product") {
  constexpr int64_t kRows = 41, kColumns = 75, kDepth = 403;
  for (const Path& path : all_paths()) {
    for (const int64_t first : {kWholeDepth, int64_t{384}}) {
      for (const int64_t rows : {kRows, int64_t{5}}) {
        const Case whole{.m = rows, .n = kColumns, .k = kDepth, .a_transposed = true};
        Product at_once(path, whole);
        multiply(path, whole, at_once);
        Case part = whole;
        part.k = first;
        Product parts(path, part);
        multiply(path, part, parts);
        part.k = kDepth - first;
        Product rest(path, part);
        for (int64_t k = 0; k < part.k; ++k) {
          for (int64_t i = 0; i < rows; ++i)
            rest.a.set_element(rest.a.index(i, k), at_once.a.get(i, first + k));
          for (int64_t j = 0; j < kColumns; ++j)
            rest.b.set_element(rest.b.index(k, j), at_once.b.get(first + k, j));
        }
        rest.result = parts.result;
        multiply(path, part, rest, /*adds=*/true);
        REQUIRE(rest.result.bytes() == at_once.result.bytes());
      }
    }
  }
}

TEST_CASE("infinities and NaN in other rows do not change a row") {
  for (const Path& path : all_paths()) {
    for_each_layout(path, 40, 35, 66, [&](const Case& c) {
      Product clean(path, c), dirty(path, c);
      for (int64_t k = 0; k < c.k; ++k) {
        dirty.a.set_element(dirty.a.index(7, k), std::numeric_limits<float>::infinity());
        dirty.a.set_element(dirty.a.index(20, k), std::numeric_limits<float>::quiet_NaN());
      }
      multiply(path, c, clean);
      multiply(path, c, dirty);
      for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.n && i != 7 && i != 20; ++j)
          REQUIRE(clean.result.get(i, j) == dirty.result.get(i, j));
      }
      REQUIRE(std::isnan(dirty.result.get(20, 0)));
    });
  }
}

TEST_CASE("tiles are released after each product") {
  const Path emulated = all_paths().back();
  const Case c{.m = 40, .n = 40, .k = 40};
  Product p(emulated, c);
  multiply(emulated, c, p);
  REQUIRE_FALSE(EmulatedTiles::configured());
}

// f32 or bf16 A["row k"] times B on several threads, as a graph runs it.
std::vector<double> einsum_rows(const std::string& dtype, int64_t rows, bool transposed,
                                int threads, const std::vector<double>& a,
                                const std::vector<double>& b, int64_t columns) {
  const int64_t depth = static_cast<int64_t>(b.size()) / columns;
  const std::string matrix =
      fmt::format(fmt::runtime(transposed ? "{0}[\"n={1} k={2}\"]" : "{0}[\"k={2} n={1}\"]"), dtype,
                  columns, depth);
  Trial trial({}, {fmt::format("{}[\"row={} k={}\"]", dtype, rows, depth), matrix});
  const std::vector<Tensor>& in = trial.inputs();
  output("y", einsum(in[0], in[1], over("k")));
  const auto device = make_cpu_device(threads);
  const std::vector<double> first(a.begin(), a.begin() + rows * depth);
  const auto& inputs = trial.graph().inputs();
  return run_graph(trial.graph(), {{inputs[0].name, first}, {inputs[1].name, b}}, *device).at("y");
}

TEST_CASE("the rows of an einsum have the same bits for any number of rows and threads") {
  constexpr int64_t kRows = 70, kDepth = 130, kColumns = 700;
  std::vector<double> a, b;
  for (int i = 0; i < kRows * kDepth; ++i) a.push_back(std::sin(i * 0.7));
  for (int i = 0; i < kDepth * kColumns; ++i) b.push_back(std::cos(i * 0.3));
  for (const std::string dtype : {"f32", "bf16"}) {
    for (const bool transposed : {false, true}) {
      INFO(dtype << " " << transposed);
      const auto all = einsum_rows(dtype, kRows, transposed, 1, a, b, kColumns);
      for (const int64_t rows : {1, 5, 8, 9, 16, 64, 70}) {
        for (const int threads : {1, 2, 3, 4}) {
          const auto some = einsum_rows(dtype, rows, transposed, threads, a, b, kColumns);
          REQUIRE(std::equal(some.begin(), some.end(), all.begin()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
