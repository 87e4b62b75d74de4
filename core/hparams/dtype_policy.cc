// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/dtype_policy.h"

#include "core/hparams/convert.h"

namespace tessera {

DTypePolicy parse_dtype_policy(std::string_view text) {
  DTypePolicy policy;
  from_tree(TreeReader{Tree::typed(text, {}), "dtypes"}, policy);
  return policy;
}

}  // namespace tessera
