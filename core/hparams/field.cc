// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/field.h"

namespace tessera {

void detail::fail_unset() {
  fail("a field that is unset was read; set it, or read it with get_or(…)");
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
