// SPDX-License-Identifier: Apache-2.0
#include "core/check/op_cases.h"

#include <iterator>

#include "core/graph/op.h"

namespace tessera {

std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (auto family : {elementwise_cases, structural_cases, composite_cases}) {
    std::vector<OpCase> rows = family();
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  return all;
}

std::string family_of(const OpCase& row) {
  std::string op = row.op;
  if (op.ends_with("_grad")) op.resize(op.size() - 5);
  static const std::map<std::string, std::string> kFamilies = {
      {"gather", "gather"},
      {"rms_norm", "norm"},
      {"softmax", "softmax"},
      {"layer_norm", "norm"},
      {"cross_entropy_shard", "cross_entropy"},
      {"cache_update", "cached_attention"},
      {"scatter_add", "gather"},
      {"pick", "gather"},
      {"random_uniform", "random"},
      {"dropout", "random"},
      {"adam_update", "optimizer"}};
  const auto found = kFamilies.find(op);
  if (found != kFamilies.end()) return found->second;
  switch (find_op(row.op).op_class) {
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kReduction:
      return "reduction";
    case OpClass::kView:
    case OpClass::kDataMovement:
    case OpClass::kReshard:
      return "layout";
    case OpClass::kGenerator:
      return "generator";
    case OpClass::kContraction:
    case OpClass::kCollective:
    case OpClass::kLoop:
    case OpClass::kOther:
      return op;
  }
  return op;
}

std::map<std::string, std::string> ops_without_cases() {
  return {{"copy", "made by passes only; tests/core/passes"},
          {"all_gather", "made by lowering; tests/core/passes"},
          {"reduce_scatter", "made by lowering; tests/core/passes"},
          {"all_reduce", "made by lowering; tests/core/passes"},
          {"all_to_all", "made by lowering; tests/core/passes"},
          {"permute", "made by lowering; tests/core/passes"},
          {"mask_to_owner", "made by lowering; tests/core/passes"},
          {"fused", "made by the fuse pass of elementwise ops that have rows; tests/core/passes"}};
}

std::string type_with(std::string_view type, std::string_view dtype) {
  constexpr std::string_view kFloat = "float[";
  if (!type.starts_with(kFloat)) return std::string(type);
  return std::string(dtype) + std::string(type.substr(kFloat.size() - 1));
}

}  // namespace tessera
