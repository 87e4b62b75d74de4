// SPDX-License-Identifier: Apache-2.0
// Makes the configuration of a run from an experiment and --set, and checks an experiment's knobs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plugins/registry.h"

namespace tessera {

struct ConfiguredExperiment {
  std::shared_ptr<const Experiment> experiment;  // With its knobs set,
  ExperimentEntry entry;                         // and its registration.
  Tree knobs;                                    // With provenance.
  ExperimentConfig config;
  std::vector<std::string> overrides;  // "path=value" of everything set in `config`.

  Tree config_tree() const;  // With provenance.
};

enum class RecipeSize {
  kFull,
  kSmoke,  // Experiment::shrink() and kSmokeSteps steps, before `sets`.
};

// Applies each "path=value": knobs before build(), other paths to its result. Error for an unknown
// path, a wrong type, or required fields that are still unset.
ConfiguredExperiment configure(const ExperimentEntry& entry, const std::vector<std::string>& sets,
                               RecipeSize size = RecipeSize::kFull);

// Error for a member of an experiment that FIELDS does not list: --set, --describe and hparams.toml
// would miss it, and a run could resume with another value. Experiments are not aggregates, so the
// compiler cannot count their members as it does for HParams (core/hparams/fields_check.h); instead
// the bytes written by construction are compared with those of the knobs.
void check_knobs(const ExperimentEntry& entry);

}  // namespace tessera
