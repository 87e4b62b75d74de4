// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/fields.h"

namespace tessera {

void detail::fail_unset() { fail("an unset field was read; set it, or read it with get_or(…)"); }

void detail::fail_unnamed(int64_t enumerator) {
  check_failed("the enumerator has a name", __FILE__, __LINE__,
               fmt::format("enumerator {}", enumerator));
}

std::string Provenance::text() const {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kInherited:
      return "inherited from " + note;
    case Origin::kExperiment:
      return site.known() ? site.text() : "experiment";
    case Origin::kFile:
      return note;
    case Origin::kCommandLine:
      return "--set " + note;
  }
  return "";
}

}  // namespace tessera
