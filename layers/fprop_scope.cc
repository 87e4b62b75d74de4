// SPDX-License-Identifier: Apache-2.0
#include "layers/fprop_scope.h"

#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

thread_local const FpropScope* innermost = nullptr;

}  // namespace

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
  CHECK(innermost != nullptr, "a layer's fprop runs outside a FpropScope");
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
