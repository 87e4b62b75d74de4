// SPDX-License-Identifier: Apache-2.0
#include "tasks/config/run_config.h"

#include <sstream>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/logging/jsonl_writer.h"

namespace tessera {
namespace {

constexpr std::string_view kNumTrainSteps = "task.train.num_train_steps";

Tree config_tree_of(const std::string& toml, const std::string& where) {
  return to_tree(with_all_evals(parse_config(toml, where)));
}

// The step of the newest checkpoint; 0 without one.
int64_t steps_saved(const std::filesystem::path& run_directory) {
  return CheckpointStore(run_directory / "checkpoints").newest().value_or(0);
}

// Whether the run is complete and only its number of steps grows.
bool is_extension(const Tree& before, const Tree& now, int64_t steps_done) {
  const int64_t was = at_path(before, kNumTrainSteps).integer;
  return steps_done >= was && at_path(now, kNumTrainSteps).integer > was;
}

}  // namespace

// A start that failed at its first batch leaves only lines of step 0.
bool run_has_begun(const std::filesystem::path& run_directory) {
  std::istringstream lines(read_log(run_directory / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (step_of_line(line).value_or(0) > 0) return true;
  return steps_saved(run_directory) > 0;  // metrics.jsonl may be lost.
}

ExperimentConfig parse_config(std::string_view text, const std::string& name) {
  const Tree tree = parse_toml(text, name);  // Its errors name the file and the line.
  const ErrorPrefix where(name);
  ExperimentConfig config;
  from_tree(tree, config);
  return config;
}

namespace {

Tree tree_of_run(const std::string& text, const std::filesystem::path& file) {
  try {
    return config_tree_of(text, file.string());
  } catch (const Error& error) {
    fail("{}; restore the file, or remove it, and the run writes it again", error.what());
  }
}

}  // namespace

std::string prepare_config(const std::filesystem::path& run_directory,
                           const std::string& experiment, SourceSite site,
                           const ExperimentConfig& config,
                           const std::vector<std::string>& overrides,
                           const PrepareOptions& options) {
  const std::filesystem::path file = run_directory / "hparams.toml";
  Tree wanted = to_tree(with_all_evals(config));
  wanted.provenance = {Origin::kExperiment, site, {}};
  for (const std::string& given : overrides) note_command_line(wanted, given);
  if (std::filesystem::exists(file) && !options.starts_over) {
    const std::string text = read_file(file);
    const Tree begun_with = tree_of_run(text, file);
    const std::vector<std::string> differences = diff(begun_with, wanted);
    if (differences.empty()) return text;
    const bool may_change =
        options.change == ConfigChange::kAllow ||
        (differences.size() == 1 && is_extension(begun_with, wanted, steps_saved(run_directory)));
    if (!may_change && run_has_begun(run_directory))
      fail(
          "{} was begun with another configuration: {}. Take those back, give a --job_log_dir of "
          "its own, or go on with --allow_config_change (or begin again with --restart)",
          run_directory.string(), fmt::join(differences, "; "));
  }
  const std::string text = to_toml(wanted, experiment);
  if (options.writes) write_file_atomically(file, text);
  return text;
}

std::string describe_change(const std::string& before, const std::string& now) {
  if (before == now || before.empty()) return "";
  // Never fails, since only a remark is made of it: another version may have written the text.
  try {
    const std::vector<std::string> differences = diff(
        config_tree_of(before, "the checkpoint's hparams"), config_tree_of(now, "hparams.toml"));
    return fmt::format("{}", fmt::join(differences, "; "));
  } catch (const Error& error) {
    return fmt::format("one that this build cannot read ({})", error.what());
  }
}

}  // namespace tessera
