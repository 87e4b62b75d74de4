// SPDX-License-Identifier: Apache-2.0
#include "layers/features.h"

#include <vector>

#include "core/base/error.h"

namespace tessera {

const Tensor& Features::get(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::vector<std::string> names;
  std::string listed;
  for (const auto& [each, tensor] : tensors) {
    names.push_back(each);
    listed += (listed.empty() ? "" : ", ") + each;
  }
  fail("the batch has no feature '{}'{} (it has: {})", name, did_you_mean(name, names), listed);
}

Tensor Features::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

}  // namespace tessera
