// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/enum_names.h"

#include "core/base/error.h"

namespace tessera {

void detail::fail_unnamed(int64_t enumerator) {
  check_failed("the enumerator has a name", __FILE__, __LINE__,
               fmt::format("enumerator {}", enumerator));
}

}  // namespace tessera
