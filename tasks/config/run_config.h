// SPDX-License-Identifier: Apache-2.0
// hparams.toml: the configuration a run's directory was begun with, and the refusal to go on with
// another one unawares.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/config/experiment.h"

namespace tessera {

// Whether a run has taken a step in this directory. Until then its configuration binds nobody.
bool run_has_begun(const std::filesystem::path& run_directory);

enum class ConfigChange { kRefuse, kAllow };

// The configuration in the text of an hparams.toml. Errors begin with `name`, which says where the
// text is from.
ExperimentConfig parse_config(std::string_view text, const std::string& name);

struct SettleOptions {
  ConfigChange change = ConfigChange::kRefuse;
  bool starts_over = false;  // What is there is of a run that is set aside, or would be.
  bool writes = true;        // false: checks only.
};

// Writes hparams.toml if the directory has none. If it has one that says something else, of a run
// that has begun: Error with the differences, or, if changes are allowed, writes the new one. A run
// that has taken all its steps may be given more (num_train_steps) without that. Returns the text.
// `overrides` are the "path=value" that the command line gave; the file says so beside them. `site`
// is where the experiment is registered: it stands beside values that know no line.
std::string prepare_config(const std::filesystem::path& run_directory,
                           const std::string& experiment, SourceSite site,
                           const ExperimentConfig& config,
                           const std::vector<std::string>& overrides, const SettleOptions& options);

// What differs between two texts of hparams.toml, on one line; empty if nothing does.
std::string describe_change(const std::string& before, const std::string& now);

}  // namespace tessera
