// SPDX-License-Identifier: Apache-2.0
// What the report shows of the files in a run's directory (docs/formats.md) besides metrics.jsonl
// and the trace. A run may be half written or damaged: what cannot be read becomes a note, never an
// error.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tasks/run/report/step_profile.h"

namespace tessera {

// Error unless the directory is that of a run: it has hparams.toml or metrics.jsonl. The message
// names the nearest directory, or the runs below this one.
void require_run(const std::filesystem::path& directory);

struct RunFiles {
  std::string config;           // hparams.toml
  std::vector<LaunchKey> rows;  // Rows of program.json.
  // What the page shows of each file that is there, as JSON, by the name that its script uses
  // (page/run_page.js).
  std::vector<std::pair<std::string, std::string>> shown;
  std::vector<std::string> notes;  // What could not be read, and why.
};

RunFiles read_run_files(const std::filesystem::path& directory);

}  // namespace tessera
