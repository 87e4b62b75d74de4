// SPDX-License-Identifier: Apache-2.0
// What the report shows of the files in a run's directory (docs/formats.md) besides metrics.jsonl
// and the trace. A run may be half written or damaged: what cannot be read becomes a note, never an
// error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/report/step_profile.h"

namespace tessera {

// Error unless the directory is that of a run: it has hparams.toml or metrics.jsonl. The message
// names the nearest directory, or the runs below this one.
void require_run(const std::filesystem::path& directory);

struct RunSample {
  int64_t step = 0;
  std::string prompt, continuation;
  bool is_cut = false;  // The report has only the beginning of it.
};

struct RunFiles {
  std::string experiment;          // From the heading of hparams.toml; or "".
  std::string config;              // hparams.toml
  int64_t num_steps = 0;           // task.train.num_train_steps; 0: unknown.
  std::string plan;                // Members of plan.json as an object; or "".
  std::string program;             // program.json; or "".
  std::vector<LaunchKey> rows;     // Of the program.
  std::vector<RunSample> samples;  // The last ones of samples.jsonl.
  std::string failures;            // The end of failures.log.
  std::string graph_file;          // "graph.svg"; or "".
  std::string graph_image;         // As a data URL.
  std::vector<std::string> notes;  // What could not be read, and why.
};

RunFiles read_run_files(const std::filesystem::path& directory);

// "data:image/svg+xml;base64,…": an image may neither run scripts nor load other files.
std::string svg_data_url(std::string_view svg);

}  // namespace tessera
