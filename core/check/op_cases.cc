// SPDX-License-Identifier: Apache-2.0
#include "core/check/op_cases.h"

#include <iterator>

#include "core/ops/attention.h"
#include "core/ops/cache.h"
#include "core/ops/collective.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"

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
  static const std::map<const OpDef*, std::string> kFamilies = {
      {&kGatherOp, "gather"},
      {&kScatterAddOp, "gather"},
      {&kPickOp, "gather"},
      {&kRmsNormOp, "norm"},
      {&kRmsNormGradOp, "norm"},
      {&kLayerNormOp, "norm"},
      {&kLayerNormGradOp, "norm"},
      {&kSoftmaxOp, "softmax"},
      {&kSoftmaxGradOp, "softmax"},
      {&kCrossEntropyGradOp, "cross_entropy"},
      {&kCrossEntropyShardOp, "cross_entropy"},
      {&kCrossEntropyShardGradOp, "cross_entropy"},
      {&kAttentionGradOp, "attention"},
      {&kCacheUpdateOp, "cached_attention"},
      {&kRandomUniformOp, "random"},
      {&kDropoutOp, "random"},
      {&kAdamUpdateOp, "optimizer"}};
  const auto found = kFamilies.find(row.op);
  if (found != kFamilies.end()) return found->second;
  switch (row.op->op_class) {
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kReduction:
      return row.op == &kReduceSumOp || row.op == &kReduceMaxOp ? "reduction"
                                                                : std::string(row.op->name);
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
      break;
  }
  return std::string(row.op->name);
}

std::map<const OpDef*, std::string> ops_without_cases() {
  const std::string lowering = "made by lowering; tests/core/passes";
  return {{&kCopyOp, "made by memory planning; tests/core/passes"},
          {&kAllGatherOp, lowering},
          {&kReduceScatterOp, lowering},
          {&kAllReduceOp, lowering},
          {&kAllToAllOp, lowering},
          {&kPermuteOp, lowering},
          {&kMaskToOwnerOp, lowering},
          {&kFusedOp, "made by the fusion pass of elementwise ops with cases; tests/core/passes"},
          {&kFusedProductOp, "made by the fusion pass of products; tests/core/passes"}};
}

std::string type_with(std::string_view type, std::string_view dtype) {
  constexpr std::string_view kFloat = "float[";
  if (!type.starts_with(kFloat)) return std::string(type);
  return std::string(dtype) + std::string(type.substr(kFloat.size() - 1));
}

}  // namespace tessera
