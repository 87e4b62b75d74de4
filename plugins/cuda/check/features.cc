// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/check/features.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/progress.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

const std::vector<Feature>& features() {
  // In order of suspicion: the first that explains a failure is named first.
  static const std::vector<std::string> runs = {"curve", "steps", "preset"};
  static const std::vector<std::string> products = {"curve", "steps", "preset", "product",
                                                    "einsum"};
  static const std::vector<std::string> attention = {"curve bf16", "steps bf16", "preset",
                                                     "attention"};
  static const std::vector<Feature> rows = {
      {"CUDA graph", "TESSERA_CUDA_GRAPH", "off", runs},
      {"marks of progress", kProgressVariable, "off", runs},
      {"attention by cuDNN", "TESSERA_CUDA_ATTENTION", "own", attention, "cudnn", "cuDNN"},
      {"epilogues in cuBLASLt", kGemmVariable, "plain", products},
      {"timed choice of algorithms", kGemmVariable, "untimed", products},
      {"cuBLASLt", kGemmVariable, "reference", products, "cublaslt", "cuBLASLt"},
      {"collectives by NCCL", "TESSERA_CUDA_COLLECTIVES", "peer", {"GPUs, "}},
  };
  return rows;
}

std::string value_without(const Feature& feature, const std::string& before) {
  const bool is_list = feature.variable == kGemmVariable;
  return is_list && !before.empty() ? before + "," + feature.off : feature.off;
}

const Feature& find_feature(std::string_view name) {
  const auto found = std::ranges::find(features(), name, &Feature::name);
  CHECK(found != features().end(), "no feature {}", name);
  return *found;
}

std::vector<Feature> features_of(std::string_view item) {
  std::vector<Feature> used;
  for (const Feature& feature : features())
    if (std::ranges::any_of(feature.items, [&](const std::string& word) {
          return item.find(word) != std::string_view::npos;
        }))
      used.push_back(feature);
  return used;
}

std::vector<Item> with_features(const Item& item) {
  std::vector<Item> copies;
  for (const Feature& feature : features_of(item.name)) {
    if (feature.on.empty()) continue;
    Item& copy = copies.emplace_back(item);
    copy.name = fmt::format("{}, with {}", item.name, feature.name);
    copy.environment[feature.variable] = feature.on;
    copy.tests = feature.library;
    copy.run = [feature, run = item.run]() -> Findings {
      const std::string missing = why_no_library(feature.library);
      return missing.empty() ? run() : Findings{.not_tested = missing};
    };
  }
  return copies;
}

}  // namespace tessera::cuda
