// SPDX-License-Identifier: Apache-2.0
// From an experiment and --set to the configuration of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plugins/registry.h"

namespace tessera {

struct ConfiguredExperiment {
  std::string name;
  std::shared_ptr<const Experiment> experiment;  // With its knobs as set,
  ExperimentEntry entry;                         // and how it is registered.
  Tree knobs;                                    // As set, with provenance.
  ExperimentConfig config;
  std::vector<std::string> overrides;  // "path=value" of what was set in `config`.

  Tree config_tree() const;  // With provenance.
};

// Applies each "path=value": those that name a knob before build(), the others to what it built.
// Error for an unknown path, a wrong type, or required fields that are still unset.
ConfiguredExperiment configure(const ExperimentEntry& entry, const std::vector<std::string>& sets);

}  // namespace tessera
