// SPDX-License-Identifier: Apache-2.0
#include "core/base/dtype.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace tessera {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  bool floating;
};

constexpr std::array<Row, 6> kRows = {{{DType::kF64, "f64", 8, true},
                                       {DType::kF32, "f32", 4, true},
                                       {DType::kBF16, "bf16", 2, true},
                                       {DType::kI32, "i32", 4, false},
                                       {DType::kU32, "u32", 4, false},
                                       {DType::kBool, "bool", 1, false}}};

// Names of PyTorch, NumPy and JAX.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kSynonyms = {
    {{"float64", "f64"},
     {"fp64", "f64"},
     {"double", "f64"},
     {"float32", "f32"},
     {"fp32", "f32"},
     {"float", "f32"},
     {"bfloat16", "bf16"},
     {"float16", "f16"},
     {"fp16", "f16"},
     {"half", "f16"},
     {"int32", "i32"},
     {"int", "i32"},
     {"uint32", "u32"}}};

const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }
int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return row(dtype).floating; }

std::string_view short_dtype_name(std::string_view name) {
  for (const auto& [longer, shorter] : kSynonyms)
    if (longer == name) return shorter;
  return name;
}

DType parse_dtype(std::string_view given) {
  const std::string_view name = short_dtype_name(given);
  if (name == "f16")
    fail(
        "dtype '{}': 16-bit IEEE floats are not supported; use bf16, which has the same size and "
        "the range of f32",
        given);
  std::vector<std::string> names;
  for (const Row& candidate : kRows) {
    if (candidate.name == name) return candidate.dtype;
    names.emplace_back(candidate.name);
  }
  fail("no dtype '{}'{} (expected f64, f32, bf16, i32, u32 or bool)", shortened(given),
       did_you_mean(name, names));
}

uint64_t element_bits(double value, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(value);
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kBF16:
      return BFloat16(static_cast<float>(value)).bits;
    case DType::kI32:
      return std::bit_cast<uint32_t>(static_cast<int32_t>(value));
    case DType::kU32:
      return static_cast<uint32_t>(value);
    case DType::kBool:
      return value != 0.0;
  }
  return 0;
}

}  // namespace tessera
