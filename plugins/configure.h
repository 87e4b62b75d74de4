// SPDX-License-Identifier: Apache-2.0
// Makes the configuration of a run from an experiment and --set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plugins/registry.h"

namespace tessera {

struct ConfiguredExperiment {
  std::string name;
  std::shared_ptr<const Experiment> experiment;  // With its knobs set,
  ExperimentEntry entry;                         // and its registration.
  Tree knobs;                                    // With provenance.
  ExperimentConfig config;
  std::vector<std::string> overrides;  // "path=value" of everything set in `config`.

  Tree config_tree() const;  // With provenance.
};

// Applies each "path=value": knobs before build(), other paths to its result. Error for an unknown
// path, a wrong type, or required fields that are still unset.
ConfiguredExperiment configure(const ExperimentEntry& entry, const std::vector<std::string>& sets);

}  // namespace tessera
