// SPDX-License-Identifier: Apache-2.0
// Which element types a layer works in. As text: "param=f32,compute=bf16".
#pragma once

#include <string_view>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"

namespace tessera {

struct DTypePolicy {
  static constexpr std::string_view kName = "DTypePolicy";
  DType param = DType::kF32;    // Weights at rest, and what the optimizer updates.
  DType compute = DType::kF32;  // Activations, and weights as they are used.
  DType reduce = DType::kF32;   // Gradients as they cross devices.
  DType output = DType::kF32;   // Logits and what else leaves the model.
  FIELDS(param, compute, reduce, output)
  bool operator==(const DTypePolicy&) const = default;
};

DTypePolicy parse_dtype_policy(std::string_view text);

}  // namespace tessera
