// SPDX-License-Identifier: Apache-2.0
#include "layers/fprop_scope.h"

#include <utility>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

thread_local const FpropScope* innermost = nullptr;

}  // namespace

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

FpropScope::FpropScope(std::vector<Tensor> parameters, const Features& features, DecodeCache* cache,
                       CastWeights* cast_weights)
    : parameters_(std::move(parameters)),
      mode_(features.mode),
      step_(features.step),
      cache_(cache),
      cast_weights_(cast_weights),
      outer_(std::exchange(innermost, this)) {}

FpropScope::~FpropScope() { innermost = outer_; }

const FpropScope& FpropScope::current() {
  CHECK(innermost != nullptr, "a layer is called outside an FpropScope");
  return *innermost;
}

bool FpropScope::decodes() { return innermost != nullptr && innermost->cache_ != nullptr; }

const Tensor& FpropScope::parameter(int32_t index) const {
  CHECK(index >= 0 && index < static_cast<int32_t>(parameters_.size()),
        "weight {} of {}: the FpropScope holds another model's parameters", index,
        parameters_.size());
  return parameters_[static_cast<size_t>(index)];
}

}  // namespace tessera
