// SPDX-License-Identifier: Apache-2.0
#include "core/base/dtype.h"

#include <array>
#include <string>
#include <vector>

#include "core/base/error.h"

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

const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }
int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return row(dtype).floating; }

DType parse_dtype(std::string_view name) {
  std::vector<std::string> names;
  for (const Row& candidate : kRows) {
    if (candidate.name == name) return candidate.dtype;
    names.emplace_back(candidate.name);
  }
  fail("no dtype '{}'{} (expected f64, f32, bf16, i32, u32 or bool)", name,
       did_you_mean(name, names));
}

}  // namespace tessera
