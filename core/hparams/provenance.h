// SPDX-License-Identifier: Apache-2.0
// Where a value of a configuration came from; dumps say it beside the value.
#pragma once

#include <string>

#include "core/base/source_site.h"

namespace tessera {

enum class Origin {
  kDefault,      // The class's own.
  kInherited,    // Unset here; taken from an enclosing HParams. `note` is its path.
  kExperiment,   // Set by an experiment's code, at `site` if that is known.
  kFile,         // Read from a file; `note` names it.
  kCommandLine,  // Given as --set; `note` is what was given.
};

struct Provenance {
  Origin origin = Origin::kDefault;
  SourceSite site;
  std::string note;

  std::string text() const;  // "experiments/c4/c4_spmd.cc:31", "inherited from task.model", …
};

}  // namespace tessera
