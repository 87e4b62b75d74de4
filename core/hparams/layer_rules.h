// SPDX-License-Identifier: Apache-2.0
// A layer's own axis rules, which come before the experiment's for its own weights and activations
// (Pax: weight_split_dims_mapping, activation_split_dims_mapping). Not for the layers below it: a
// rule that holds for all is the experiment's.
#pragma once

#include <string>
#include <string_view>

#include "core/hparams/fields.h"

namespace tessera {

// As the experiment's rules are written: "mlp -> (mdl, data)", "residual: seq -> ()". An axis that
// is named here is not looked up there.
struct LayerRules {
  static constexpr std::string_view kName = "LayerRules";
  std::string weights;
  std::string activations;
  FIELDS(weights, activations)
  bool operator==(const LayerRules&) const = default;
};

}  // namespace tessera
