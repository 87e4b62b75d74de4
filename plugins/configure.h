// SPDX-License-Identifier: Apache-2.0
// Makes the configuration of a run from an experiment and --set, and checks an experiment's knobs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "plugins/registry.h"

namespace tessera {

struct ConfiguredExperiment {
  std::shared_ptr<const Experiment> experiment;  // With its knobs set,
  ExperimentEntry entry;                         // and its registration.
  Tree knobs;                                    // With provenance; none with --config.
  ExperimentConfig config;
  // "path=value" of everything that --set sets in `config`; "--smoke path=value" of a flag.
  std::vector<std::string> overrides;
  std::filesystem::path config_file;  // The file of --config; or empty.

  Tree config_tree() const;  // With provenance.
};

enum class RecipeSize {
  kFull,
  kSmoke,  // Experiment::shrink(), kSmokeSteps steps, 16 batches an evaluation, before `sets`.
};

// Applies each "path=value": knobs before build(), other paths to its result. Error for an unknown
// path, a wrong type, or required fields that are still unset.
ConfiguredExperiment configure(const ExperimentEntry& entry, const std::vector<std::string>& sets,
                               RecipeSize size = RecipeSize::kFull);

// A configuration read from a file, such as the hparams.toml of a run.
struct StoredConfig {
  std::filesystem::path file;
  std::string text;
  std::string experiment;  // Its first line: "quickstart.SourceLm".
};

// Reads the file, or hparams.toml in a run's directory. Error if it cannot be read, or if its first
// line does not name an experiment, whose plugin must be loaded.
StoredConfig read_config(const std::filesystem::path& path);

// The configuration of the file in place of the result of build(), with each "path=value". Error as
// above; and for a knob, since knobs have no effect after build().
ConfiguredExperiment configure(const ExperimentEntry& entry, const StoredConfig& stored,
                               const std::vector<std::string>& sets);

// Error for a member of an experiment that FIELDS does not list: --set, --describe and hparams.toml
// would miss it, and a run could resume with another value. Experiments are not aggregates, so the
// compiler cannot count their members as it does for HParams (core/hparams/fields_check.h); instead
// the bytes written by construction are compared with those of the knobs.
void check_knobs(const ExperimentEntry& entry);

}  // namespace tessera
