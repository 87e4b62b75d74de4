// SPDX-License-Identifier: Apache-2.0
// einsum against the reference for every place an axis can have, odd sizes and both dtypes; and
// each library against a plain loop.
#include "core/graph/ops/einsum.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/backend/cpu/contraction.h"
#include "core/backend/cpu/device.h"
#include "core/backend/cpu/features.h"
#include "core/backend/cpu/few_rows_product.h"
#include "core/backend/cpu/matrix_product.h"
#include "core/graph/ops/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/run_graph.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// "a=3 b" with sizes for each axis of `names`.
std::string sized(const std::string& dtype, const std::string& names,
                  const std::map<char, int>& sizes) {
  std::string text = dtype + "[\"";
  for (const char name : names) {
    if (name != ' ') text += fmt::format("{}={} ", name, sizes.at(name));
  }
  return text + "\"]";
}
std::string spaced(std::string names) {
  std::string text;
  for (const char name : names) text += std::string(text.empty() ? "" : " ") + name;
  return text;
}

std::string difference(const std::string& dtype, const std::string& x, const std::string& y,
                       const std::string& z, const std::map<char, int>& sizes) {
  static const std::unique_ptr<Device> device = make_cpu_device(3);
  Trial trial(Mesh(), {sized(dtype, x, sizes), sized(dtype, y, sizes)});
  const std::string equation = spaced(x) + ", " + spaced(y) + " -> " + spaced(z);
  const Tensor result = einsum(equation, trial.inputs()[0], trial.inputs()[1]);
  trial.graph().add_output("z", result.id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 7);
  const std::string message =
      difference_from_reference(trial.graph(), inputs, *device, {.relative = 2e-6});
  return message.empty() ? "" : equation + ": " + message;
}

// Batch b, rows m and p, columns n and q, contracted k and l.
const std::vector<std::map<char, int>> kSizes = {
    {{'b', 3}, {'m', 5}, {'p', 2}, {'n', 7}, {'q', 3}, {'k', 6}, {'l', 4}},
    {{'b', 1}, {'m', 130}, {'p', 3}, {'n', 65}, {'q', 2}, {'k', 33}, {'l', 5}},
    {{'b', 7}, {'m', 1}, {'p', 1}, {'n', 33}, {'q', 1}, {'k', 17}, {'l', 1}},
    {{'b', 2}, {'m', 17}, {'p', 1}, {'n', 1}, {'q', 1}, {'k', 1}, {'l', 1}},
};

TEST_CASE("Products of matrices in every order of axes") {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& sizes : kSizes) {
      for (const char* x : {"mk", "km"}) {
        for (const char* y : {"kn", "nk"}) {
          for (const char* z : {"mn", "nm"}) REQUIRE(difference(dtype, x, y, z, sizes) == "");
        }
      }
    }
  }
}

TEST_CASE("Batched products in every order of axes") {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& sizes : kSizes) {
      std::string x = "bkm";
      do {
        std::string y = "bkn";
        do {
          for (const char* z : {"bmn", "bnm", "mbn", "mnb", "nbm", "nmb"}) {
            REQUIRE(difference(dtype, x, y, z, sizes) == "");
          }
        } while (std::next_permutation(y.begin(), y.end()));
      } while (std::next_permutation(x.begin(), x.end()));
    }
  }
}

TEST_CASE("Axes in groups, contiguous and not, and nothing contracted") {
  const char* const cases[][3] = {
      {"bmkl", "klnq", "bmnq"}, {"bmnq", "klnq", "bmkl"}, {"bmkl", "bmnq", "klnq"},
      {"bmpk", "bnpk", "bpmn"}, {"kmlp", "lnkq", "mnpq"}, {"mkpl", "qlnk", "qpnm"},
      {"bm", "bm", "b"},        {"bm", "bm", ""},         {"m", "n", "mn"},
      {"bm", "b", "m"},         {"bm", "bn", "bmn"},      {"bmk", "k", "bm"},
      {"bm", "bm", "bm"},
  };
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& sizes : kSizes) {
      for (const auto& [x, y, z] : cases) {
        REQUIRE(difference(dtype, x, y, z, sizes) == "");
      }
    }
  }
}

TEST_CASE("The usual products of a transformer are not packed") {
  const char* const cases[][3] = {
      {"f32[\"b=2 s=8 e=6\"]", "f32[\"e=6 h=2 d=4\"]", "b s h d"},
      {"f32[\"b=2 s=8 h=2 d=4\"]", "f32[\"h=2 d=4 e=6\"]", "b s e"},
      {"f32[\"b=2 s=8 e=6\"]", "f32[\"v=9 e=6\"]", "b s v"},
      {"f32[\"b=2 s=8 h=2 d=4\"]", "f32[\"e=6 h=2 d=4\"]", "b s e"},
      {"f32[\"b=2 s=8 h=2 d=4\"]", "f32[\"b=2 s=8 e=6\"]", "e h d"},
      {"f32[\"b=2 s=8 v=9\"]", "f32[\"b=2 s=8 e=6\"]", "v e"},
  };
  for (const auto& [x, y, z] : cases) {
    Trial trial(Mesh(), {x, y});
    const Tensor a = trial.inputs()[0], b = trial.inputs()[1];
    const std::string equation = fmt::format("{}, {} -> {}", fmt::join(a.type().names(), " "),
                                             fmt::join(b.type().names(), " "), z);
    INFO(equation);
    einsum(equation, a, b);
    const Contraction found = make_contraction(trial.graph(), trial.graph().nodes().back());
    REQUIRE_FALSE(found.pack_a.has_value());
    REQUIRE_FALSE(found.pack_b.has_value());
    REQUIRE_FALSE(found.pack_c.has_value());
    REQUIRE(found.batches() == 1);
  }
}

// One library against a plain loop, for a part of larger matrices.
double library_error(ProductLibrary library, ProductShape shape) {
  const auto count = [](int64_t rows, int64_t columns, MatrixLayout& layout, int64_t extra) {
    layout.leading = (layout.transposed ? rows : columns) + extra;
    return static_cast<size_t>(layout.leading * (layout.transposed ? columns : rows));
  };
  std::vector<float> a(count(shape.m, shape.k, shape.a, 3)), b(count(shape.k, shape.n, shape.b, 5));
  shape.c_leading = shape.n + 7;
  std::vector<float> c(static_cast<size_t>(shape.m * shape.c_leading), -1.0f);
  const auto rounded = [&](float x) {
    return shape.input == DType::kBF16 ? static_cast<float>(BFloat16(x)) : x;
  };
  for (size_t i = 0; i < a.size(); ++i) a[i] = rounded(std::sin(static_cast<float>(i)));
  for (size_t i = 0; i < b.size(); ++i) b[i] = rounded(std::cos(static_cast<float>(i)));
  const auto bytes_of = [&](const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> bytes;
    for (const float value : values) {
      const BFloat16 narrow(value);
      const auto* from = dtype == DType::kF32 ? reinterpret_cast<const std::byte*>(&value)
                                              : reinterpret_cast<const std::byte*>(&narrow);
      bytes.insert(bytes.end(), from, from + dtype_bytes(dtype));
    }
    return bytes;
  };
  const auto product = make_matrix_product(shape, library);
  const auto a_bytes = bytes_of(a, shape.input), b_bytes = bytes_of(b, shape.input);
  auto c_bytes = bytes_of(c, shape.output);
  std::vector<std::byte> scratch(static_cast<size_t>(product->scratch_bytes()) + 64);
  product->run(a_bytes.data(), b_bytes.data(), c_bytes.data(), scratch.data());
  double worst = 0.0;
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.c_leading; ++j) {
      double sum = -1.0;  // What lies between the rows stays.
      if (j < shape.n) {
        sum = 0.0;
        for (int64_t l = 0; l < shape.k; ++l) {
          const int64_t at_a =
              shape.a.transposed ? l * shape.a.leading + i : i * shape.a.leading + l;
          const int64_t at_b =
              shape.b.transposed ? j * shape.b.leading + l : l * shape.b.leading + j;
          sum += static_cast<double>(a[static_cast<size_t>(at_a)]) * b[static_cast<size_t>(at_b)];
        }
      }
      const auto at = static_cast<size_t>(i * shape.c_leading + j);
      const double got = shape.output == DType::kF32
                             ? reinterpret_cast<const float*>(c_bytes.data())[at]
                             : static_cast<float>(reinterpret_cast<BFloat16*>(c_bytes.data())[at]);
      const double slack = shape.output == DType::kBF16 ? std::abs(sum) / 256.0 : 0.0;
      worst = std::max(worst, std::abs(got - sum) - slack);
    }
  }
  return worst;
}

TEST_CASE("Each library multiplies parts of matrices, plain and transposed") {
  for (const ProductLibrary library :
       {ProductLibrary::kOpenBlas, ProductLibrary::kOpenBlasWidened, ProductLibrary::kOneDnn}) {
    for (const DType input : {DType::kF32, DType::kBF16}) {
      if (library == ProductLibrary::kOpenBlas && input != DType::kF32) continue;
      if (library == ProductLibrary::kOpenBlasWidened && input != DType::kBF16) continue;
      if (library == ProductLibrary::kOneDnn && input == DType::kBF16 &&
          cpu_level() < CpuLevel::kAvx512) {
        continue;
      }
      for (const DType output : {DType::kF32, DType::kBF16}) {
        if (input == DType::kF32 && output != DType::kF32) continue;
        for (const int flags : {0, 1, 2, 3}) {
          INFO(library_name(library) << " " << dtype_name(input) << " " << flags);
          const ProductShape shape{.m = 37,
                                   .n = 50,
                                   .k = 65,
                                   .a = {0, (flags & 1) != 0},
                                   .b = {0, (flags & 2) != 0},
                                   .input = input,
                                   .output = output};
          REQUIRE(library_error(library, shape) < 2e-5);
        }
      }
    }
  }
}

TEST_CASE("Loops for few rows multiply parts of matrices, plain and transposed") {
  for (const DType input : {DType::kF32, DType::kBF16}) {
    for (const DType output : {DType::kF32, DType::kBF16}) {
      if (input == DType::kF32 && output != DType::kF32) continue;
      for (const bool transposed : {false, true}) {
        for (const int64_t rows : {1, 3, 4, 7, 16}) {
          for (const auto& [columns, depth] :
               {std::pair<int64_t, int64_t>{1, 1}, {50, 65}, {600, 24}}) {
            INFO(dtype_name(input) << " " << transposed << " " << rows << " " << columns);
            REQUIRE(library_error(ProductLibrary::kFewRows, {.m = rows,
                                                             .n = columns,
                                                             .k = depth,
                                                             .b = {0, transposed},
                                                             .input = input,
                                                             .output = output}) < 2e-5);
          }
        }
      }
    }
  }
}

// f32 or bf16 A["row k"] times B, on a team, as a graph runs it: the results' bytes.
std::vector<double> few_rows(const std::string& dtype, int64_t rows, bool transposed, int threads,
                             const std::vector<double>& a, const std::vector<double>& b,
                             int64_t columns) {
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

TEST_CASE("A row of a product has the same bits whatever is beside it and however it is cut up") {
  constexpr int64_t kDepth = 130, kColumns = 700;
  std::vector<double> a, b;
  for (int i = 0; i < kFewRows * kDepth; ++i) a.push_back(std::sin(i * 0.7));
  for (int i = 0; i < kDepth * kColumns; ++i) b.push_back(std::cos(i * 0.3));
  for (const std::string dtype : {"f32", "bf16"}) {
    for (const bool transposed : {false, true}) {
      INFO(dtype << " " << transposed);
      const auto all = few_rows(dtype, kFewRows, transposed, 1, a, b, kColumns);
      for (const int64_t rows : {1, 2, 5, 8, 16}) {
        for (const int threads : {1, 2, 3}) {
          const auto some = few_rows(dtype, rows, transposed, threads, a, b, kColumns);
          REQUIRE(std::equal(some.begin(), some.end(), all.begin()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
