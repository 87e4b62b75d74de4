// SPDX-License-Identifier: Apache-2.0
// The message of a c4 experiment without data: commands that fetch C4. docs/recipes.md explains
// them, and a test runs them.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/readers/text_files.h"
#include "inputs/streaming/streaming_text_input.h"
#include "tasks/recipes/c4_recipe.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// For a start: 10 of 1024 files with 1.5 billion tokens, and the validation files.
constexpr const char* kSomeFiles = "'en/c4-*.0000?-of-*.json.gz'";
constexpr const char* kFolder = "en";  // In the data set, and so in the download.

bool is_there(const std::string& path) {
  return is_file_pattern(path) ? !matching_files(path).empty() : fs::exists(path);
}

// The folder of the files that the experiment reads or tokenises.
fs::path folder_of(const std::string& shards) {
  const fs::path folder = is_file_pattern(shards) ? pattern_root(shards) : fs::path(shards);
  return folder.empty() ? fs::path(".") : folder;
}

// The download folder for `hf`: `data` for data/en/*.json.gz.
fs::path download_folder(const std::string& shards) {
  const fs::path folder = folder_of(shards);
  const fs::path top = folder.filename() == kFolder ? folder.parent_path() : folder;
  return top.empty() ? fs::path(".") : top;
}

std::vector<std::string> commands_to_fetch(const std::string& shards) {
  const bool is_as_fetched = folder_of(shards).filename() == kFolder;
  const fs::path top = download_folder(shards);
  std::vector<std::string> commands = {
      "pip install -U huggingface_hub",
      fmt::format("hf download allenai/c4 --repo-type dataset --local-dir {} --include {}",
                  top.string(), kSomeFiles)};
  if (!is_as_fetched)
    commands.push_back(fmt::format("mv {0}/{1}/*.json.gz {0}", top.string(), kFolder));
  return commands;
}

// Adds a command that makes the folder of a file, unless it exists or the download makes it.
void add_folder(const std::string& file, const std::string& shards,
                std::vector<std::string>* commands) {
  const fs::path folder = fs::path(file).parent_path();
  if (folder.empty() || fs::exists(folder) || folder == download_folder(shards)) return;
  const std::string command = "mkdir -p " + folder.string();
  if (std::find(commands->begin(), commands->end(), command) == commands->end())
    commands->push_back(command);
}

// The first file of the pattern: enough to train a tokenizer.
std::string first_of(const std::string& shards) {
  return (folder_of(shards) / "c4-train.00000-of-01024.json.gz").string();
}

std::string where(const std::string& path) {
  return is_file_pattern(path) ? "no file matches " + fs::absolute(path).string()
                               : fs::absolute(path).string() + " does not exist";
}

}  // namespace

// Commands whose output exists are omitted.
std::optional<MissingData> C4Recipe::missing_data(const ExperimentConfig& config) const {
  const bool reads_tokens =
      config.input.holds<FlatTokensInput::HParams>() &&
      config.input.as<FlatTokensInput::HParams>().path.get() == flat_tokens_path;
  const bool reads_shards =
      config.input.holds<StreamingTextInput::HParams>() &&
      config.input.as<StreamingTextInput::HParams>().path.get() == train_shards;
  if (!reads_tokens && !reads_shards) return std::nullopt;  // The data are not the recipe's.
  const bool has_tokenizer = tokenizer == "bytes" || is_there(tokenizer);
  const bool has_shards = is_there(train_shards) && is_there(validation_shards);
  MissingData missing;
  if (reads_tokens && !is_there(flat_tokens_path)) {
    missing.what = fmt::format("{} (flat_tokens_path)", where(flat_tokens_path));
  } else if (reads_shards && !has_shards) {
    const bool is_train = !is_there(train_shards);
    missing.what = fmt::format("{} ({})", where(is_train ? train_shards : validation_shards),
                               is_train ? "train_shards" : "validation_shards");
  } else if (reads_shards && !has_tokenizer) {
    missing.what = fmt::format("{} (tokenizer)", where(tokenizer));
  } else {
    return std::nullopt;
  }
  if (!has_shards) missing.commands = commands_to_fetch(train_shards);
  if (!has_tokenizer) {
    add_folder(tokenizer, train_shards, &missing.commands);
    missing.commands.push_back(fmt::format("./flat_tokens train --output={} --vocab_size={} {}",
                                           tokenizer, std::min(tokenizer_size, vocab_size),
                                           first_of(train_shards)));
  }
  if (reads_tokens) {
    add_folder(flat_tokens_path, train_shards, &missing.commands);
    missing.commands.push_back(
        fmt::format("./flat_tokens build --output={} --tokenizer={} --validation='{}' '{}'",
                    flat_tokens_path, tokenizer, validation_shards, train_shards));
  }
  if (!has_shards)
    missing.advice =
        "They fetch the first 3 GB of C4's English text; the whole is 'en/*.json.gz', 305 GB. ";
  missing.advice +=
      "See docs/recipes.md. Without data, --mode=plan shows what a step needs, and --set "
      "data=synthetic trains on synthetic sequences.";
  return missing;
}

}  // namespace tessera
