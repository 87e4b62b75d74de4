// SPDX-License-Identifier: Apache-2.0
#include "tests/support/op_cases.h"

#include <iterator>

namespace tessera {

std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (auto family : {elementwise_cases, structural_cases, composite_cases}) {
    std::vector<OpCase> rows = family();
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  return all;
}

std::map<std::string, std::string> ops_without_cases() {
  return {{"copy", "made by passes only; tests/core/passes"},
          {"all_gather", "made by lowering; tests/core/passes"},
          {"reduce_scatter", "made by lowering; tests/core/passes"},
          {"all_reduce", "made by lowering; tests/core/passes"},
          {"all_to_all", "made by lowering; tests/core/passes"},
          {"permute", "made by lowering; tests/core/passes"},
          {"keep_or_zero", "made by lowering; tests/core/passes"},
          {"fused", "made by the fuse pass of elementwise ops that have rows; tests/core/passes"}};
}

std::string type_with(std::string_view type, std::string_view dtype) {
  constexpr std::string_view kFloat = "float[";
  if (!type.starts_with(kFloat)) return std::string(type);
  return std::string(dtype) + std::string(type.substr(kFloat.size() - 1));
}

}  // namespace tessera
