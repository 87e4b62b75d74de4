// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_config.h"

#include <fstream>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/hparams/convert.h"
#include "core/hparams/describe.h"
#include "core/hparams/path.h"
#include "core/hparams/toml.h"

namespace tessera {

// A start that failed at its first batch leaves the line of its start and nothing else.
bool run_has_begun(const std::filesystem::path& run_directory) {
  std::ifstream lines(run_directory / "metrics.jsonl");
  std::string line;
  while (std::getline(lines, line))
    if (!line.starts_with(R"({"event": "start")")) return true;
  return false;
}

ExperimentConfig parse_config(std::string_view text, const std::string& name) {
  const Tree tree = parse_toml(text, name);  // Whose errors name the file and the line.
  const ErrorPrefix where(name);
  ExperimentConfig config;
  from_tree(tree, config);
  return config;
}

std::string settle_config(const std::filesystem::path& run_directory, const std::string& experiment,
                          SourceSite site, const ExperimentConfig& config,
                          const std::vector<std::string>& overrides, ConfigChange change) {
  const std::filesystem::path file = run_directory / "hparams.toml";
  Tree wanted = to_tree(with_all_evals(config));
  wanted.provenance = {Origin::kExperiment, site, {}};
  for (const std::string& given : overrides) note_command_line(wanted, given);
  if (std::filesystem::exists(file)) {
    const std::string text = read_file(file);
    const ExperimentConfig begun_with = parse_config(text, file.string());
    const std::vector<std::string> differences = diff(to_tree(with_all_evals(begun_with)), wanted);
    if (differences.empty()) return text;
    if (change == ConfigChange::kRefuse && run_has_begun(run_directory))
      fail(
          "{} was begun with another configuration: {}. Take those back, give a --job_log_dir of "
          "its own, or go on with --allow_config_change (or begin again with --restart)",
          run_directory.string(), fmt::join(differences, "; "));
  }
  const std::string text = to_toml(wanted, experiment);
  write_file_atomically(file, text);
  return text;
}

}  // namespace tessera
