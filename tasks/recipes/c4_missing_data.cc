// SPDX-License-Identifier: Apache-2.0
// The message of a c4 experiment without data: commands that fetch C4. docs/recipes.md explains
// them, and a test runs them.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/readers/text_files.h"
#include "inputs/streaming/streaming_text_input.h"
#include "tasks/recipes/c4_recipe.h"
#include "tasks/recipes/missing_files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Enough to start with: 10 of 1024 files with 1.5 billion tokens, and the validation files.
constexpr const char* kSomeFiles = "'en/c4-*.0000?-of-*.json.gz'";
constexpr const char* kFolder = "en";  // In the data set, and so in the download.
constexpr const char* kDownload = "hf download allenai/c4";

const std::string kAdvice =
    "See docs/recipes.md. Without data, --mode=plan shows what a step needs, and --set "
    "data=synthetic trains on synthetic sequences.";
const std::string kAdviceOnDownload =
    "They fetch the first 3 GB of C4's English text; the whole is 'en/*.json.gz', 305 GB. ";

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
  const std::string top = download_folder(shards).string();
  std::vector<std::string> commands = commands_to_fetch_c4(top);
  if (folder_of(shards).filename() != kFolder)
    commands.push_back(fmt::format("mv {0}/{1}/*.json.gz {0}", shell_quoted(top), kFolder));
  return commands;
}

// The first file of the pattern: enough to train a tokenizer.
std::string first_of(const std::string& shards) {
  return (folder_of(shards) / "c4-train.00000-of-01024.json.gz").string();
}

}  // namespace

std::vector<std::string> commands_to_fetch_c4(const std::string& folder) {
  return {"pip install -U huggingface_hub",
          fmt::format("{} --repo-type dataset --local-dir {} --include {}", kDownload,
                      shell_quoted(folder), kSomeFiles)};
}

std::optional<MissingData> C4Recipe::missing_data(const ExperimentConfig& config) const {
  const bool reads_tokens = reads<FlatTokensInput::HParams>(config.input, flat_tokens_path);
  if (!reads_tokens && !reads<StreamingTextInput::HParams>(config.input, train_shards))
    return std::nullopt;
  const std::vector<std::string> fetch = commands_to_fetch(train_shards);
  std::vector<RecipeFile> sources = {{train_shards, "train_shards", fetch},
                                     {validation_shards, "validation_shards", fetch}};
  if (tokenizer != "bytes")
    sources.push_back(
        trained_tokenizer(tokenizer, std::min(tokenizer_size, vocab_size), first_of(train_shards)));
  std::vector<std::string> options = {"--validation=" + validation_shards};
  if (pax_rows) options.push_back("--end_of_document=none");
  const RecipeFile tokens = built_tokens(flat_tokens_path, tokenizer, options, train_shards);
  std::optional<MissingData> missing = reads_tokens ? missing_files(sources, {tokens}, kAdvice)
                                                    : missing_files({}, sources, kAdvice);
  const auto is_download = [](const std::string& command) {
    return command.starts_with(kDownload);
  };
  if (missing && std::ranges::any_of(missing->commands, is_download))
    missing->advice = kAdviceOnDownload + missing->advice;
  return missing;
}

}  // namespace tessera
