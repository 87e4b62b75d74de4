// SPDX-License-Identifier: Apache-2.0
// hparams.toml: the configuration with which a run began. Resuming with a different one is an error
// unless it is allowed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/config/experiment.h"

namespace tessera {

// Whether the run in this directory has made a step. Before that its configuration may change.
bool run_has_begun(const std::filesystem::path& run_directory);

enum class ConfigChange { kRefuse, kAllow };

// Parses the text of an hparams.toml. Errors begin with `name`, which says where the text is from.
ExperimentConfig parse_config(std::string_view text, const std::string& name);

struct PrepareOptions {
  ConfigChange change = ConfigChange::kRefuse;
  bool starts_over = false;  // An existing run is (or, in a dry run, would be) set aside.
  bool writes = true;        // false: only check.
};

// Writes hparams.toml if the directory has none. If the run has begun with another configuration:
// Error with the differences, or, if changes are allowed, the new one is written. A finished run
// may be extended (num_train_steps) without permission. Returns the text. `overrides` are the
// "path=value" of the command line, which the file cites; `site` is the line that registers the
// experiment, cited for values without a line of their own.
std::string prepare_config(const std::filesystem::path& run_directory,
                           const std::string& experiment, SourceSite site,
                           const ExperimentConfig& config,
                           const std::vector<std::string>& overrides,
                           const PrepareOptions& options);

// The differences between two texts of hparams.toml, on one line; "" if they are equal.
std::string describe_change(const std::string& before, const std::string& now);

}  // namespace tessera
