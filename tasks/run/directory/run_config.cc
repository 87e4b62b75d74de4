// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/directory/run_config.h"

#include <algorithm>
#include <array>
#include <functional>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/http.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tasks/run/log/jsonl_writer.h"

namespace tessera {
namespace {

constexpr std::string_view kNumTrainSteps = "task.train.num_train_steps";

Tree config_tree_of(const std::string& toml, const std::string& where) {
  return to_tree(with_all_evals(parse_config(toml, where)));
}

Tree tree_of_run(const std::string& text, const std::filesystem::path& file) {
  try {
    return config_tree_of(text, file.string());
  } catch (const Error& error) {
    fail("{}; restore the file, or remove it so that the run writes it again", error.what());
  }
}

// The step of the newest checkpoint; 0 without one.
int64_t steps_saved(const std::filesystem::path& run_directory) {
  return CheckpointStore(run_directory / "checkpoints").newest().value_or(0);
}

// Trackers do not change what a run computes.
void remove_trackers(std::vector<std::string>* differences) {
  std::erase_if(*differences, [](const std::string& each) {
    return std::ranges::any_of(
        std::array{"trackers", "notify", "tags", "tracker_wait_seconds"},
        [&](const char* field) { return each.starts_with(std::string("task.train.") + field); });
  });
}

// Whether the run is complete and only its number of steps grows.
bool is_extension(const Tree& before, const Tree& now, int64_t steps_done) {
  const int64_t was = at_path(before, kNumTrainSteps).integer;
  return steps_done >= was && at_path(now, kNumTrainSteps).integer > was;
}

// The differences, on one line, of what is at `root` and below. Never fails: another version may
// have written the text.
std::string describe_change_of(std::string_view root, const std::string& before,
                               const std::function<Tree()>& now) {
  try {
    std::vector<std::string> differences =
        diff(config_tree_of(before, "the checkpoint's hparams"), now());
    std::erase_if(differences, [&](const std::string& each) { return !each.starts_with(root); });
    remove_trackers(&differences);
    return fmt::format("{}", fmt::join(differences, "; "));
  } catch (const Error& error) {
    return fmt::format("one that this build cannot read ({})", error.what());
  }
}

// The file: a line with the format, a line with the name, then the definition.
constexpr std::string_view kHeading = "tessera tokenizer 1\n";

std::filesystem::path file_of(const std::filesystem::path& run_directory) {
  return run_directory / "tokenizer";
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

int64_t num_train_steps(const Tree& config) {
  const Tree* node = &config;
  for (const char* name : {"task", "train", "num_train_steps"})
    if (node != nullptr) node = node->find(name);
  return node == nullptr ? 0 : node->integer;
}

// hparams.toml is read by many.
void refuse_secrets(const Tree& tree, const std::string& name) {
  if (tree.kind == Tree::Kind::kString || tree.kind == Tree::Kind::kText) {
    const ErrorPrefix where(name);
    refuse_secret(tree.text);
  }
  for (size_t i = 0; i < tree.items.size(); ++i) {
    const std::string key = i < tree.keys.size() ? tree.keys[i] : std::to_string(i);
    refuse_secrets(tree.items[i], name.empty() ? key : name + '.' + key);
  }
}

std::string prepare_config(const ExperimentConfig& config, const RunSetting& setting) {
  const std::filesystem::path file = setting.job_log_dir / "hparams.toml";
  Tree given = to_tree(with_all_evals(config));
  refuse_secrets(given, "");
  given.provenance = {Origin::kExperiment, setting.site, {}};
  for (const std::string& each : setting.overrides) note_command_line(given, each);
  bool has_begun = false;
  if (std::filesystem::exists(file) && !setting.restart) {
    const std::string text = read_file(file);
    const Tree stored = tree_of_run(text, file);
    std::vector<std::string> differences = diff(stored, given);
    if (differences.empty()) return text;
    remove_trackers(&differences);
    const bool may_change =
        setting.allow_config_change || differences.empty() ||
        (differences.size() == 1 && is_extension(stored, given, steps_saved(setting.job_log_dir)));
    has_begun = run_has_begun(setting.job_log_dir);
    if (!may_change && has_begun)
      fail(
          "{} was started with a different configuration: {}. Restore the old values, use a new "
          "--job_log_dir, or continue with the new values by --allow_config_change (--restart "
          "starts over)",
          setting.job_log_dir.string(), fmt::join(differences, "; "));
  }
  const std::string text = to_toml(given, setting.experiment);
  if (!has_begun) keep_config(text, setting);
  return text;
}

void keep_config(const std::string& text, const RunSetting& setting) {
  const std::filesystem::path file = setting.job_log_dir / "hparams.toml";
  if (setting.dry_run || (std::filesystem::exists(file) && read_file(file) == text)) return;
  write_file_atomically(file, text);
}

std::string describe_change(const std::string& before, const std::string& now) {
  if (before == now || before.empty()) return "";
  return describe_change_of("", before, [&] { return config_tree_of(now, "hparams.toml"); });
}

std::string note_of_model_change(const std::string& trained, const ExperimentConfig& now,
                                 int64_t step) {
  if (trained.empty()) return "";
  const std::string change =
      describe_change_of("task.model", trained, [&] { return to_tree(now); });
  return change.empty()
             ? ""
             : fmt::format("note: step {} was trained with another model: {}", step, change);
}

void write_run_tokenizer(const std::filesystem::path& run_directory, const Tokenizer& tokenizer) {
  std::string name = tokenizer.name();
  std::replace(name.begin(), name.end(), '\n', ' ');
  const std::string text = std::string(kHeading) + name + '\n' + tokenizer.definition();
  const std::filesystem::path file = file_of(run_directory);
  if (!std::filesystem::exists(file) || read_file(file) != text) write_file_atomically(file, text);
}

std::unique_ptr<Tokenizer> read_run_tokenizer(const std::filesystem::path& run_directory) {
  const std::filesystem::path file = file_of(run_directory);
  if (!std::filesystem::exists(file)) return nullptr;
  const std::string text = read_file(file);
  const size_t end = text.find('\n', kHeading.size());
  if (!text.starts_with(kHeading) || end == std::string::npos)
    fail("{} is not the tokenizer file of a run; expected it to begin with '{}'", file.string(),
         kHeading.substr(0, kHeading.size() - 1));
  const ErrorPrefix where(file.string());
  return tokenizer_of_definition(text.substr(kHeading.size(), end - kHeading.size()),
                                 text.substr(end + 1));
}

namespace fs = std::filesystem;

bool is_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / "hparams.toml", ignored) ||
         fs::is_regular_file(directory / "metrics.jsonl", ignored);
}

std::vector<fs::path> runs_below(const fs::path& directory, size_t most, int levels) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(
           directory, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::recursive_directory_iterator() && found.size() < most;
       at.increment(error)) {
    if (at.depth() + 1 >= levels) at.disable_recursion_pending();
    if (is_run(at->path())) found.push_back(at->path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> runs_of(const fs::path& directory) {
  std::vector<fs::path> found;
  if (!is_run(directory)) found = runs_below(directory, std::string::npos, 1);
  if (found.empty()) return {directory};
  return found;
}

std::string did_you_mean_run(const fs::path& directory) {
  constexpr size_t kMostSearched = 500;
  // A '/' at the end makes an empty file name.
  const fs::path path = directory.has_filename() ? directory : directory.parent_path();
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  for (const fs::path& run : runs_below(parent, kMostSearched))
    names.push_back(run.lexically_relative(parent).string());
  return did_you_mean(path.filename().string(), names);
}

}  // namespace tessera
