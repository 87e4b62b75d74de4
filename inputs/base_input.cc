// SPDX-License-Identifier: Apache-2.0
#include "inputs/base_input.h"

namespace tessera {

Batch global_specification(const BaseInput& input) {
  Batch specification = input.specification();
  for (auto& [name, array] : specification) array.shape[0] = input.global_batch_size();
  return specification;
}

}  // namespace tessera
