// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/weight_init.h"

#include <cmath>

#include "core/hparams/convert.h"

namespace tessera {

WeightInit xavier_with_fixup(double scale, double depth, double layers_per_residual_block) {
  return {InitKind::kXavier, scale * std::pow(depth, -0.5 / layers_per_residual_block)};
}

WeightInit parse_weight_init(std::string_view text) {
  WeightInit init;
  from_tree(TreeReader{Tree::typed(text, {}), "weight init"}, init);
  return init;
}

}  // namespace tessera
