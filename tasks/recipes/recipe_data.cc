// SPDX-License-Identifier: Apache-2.0
#include "tasks/recipes/recipe_data.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "core/io/environment.h"
#include "inputs/readers/text_files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool exists(const RecipeFile& file) {
  const std::string path = user_path(file.path, file.knob);
  return is_file_pattern(path) ? !matching_files(path).empty() : fs::exists(path);
}

std::string what_is_missing(const RecipeFile& file) {
  const std::string path = fs::absolute(user_path(file.path, file.knob)).string();
  return fmt::format(
      "{} ({})", is_file_pattern(file.path) ? "no file matches " + path : path + " does not exist",
      file.knob);
}

void add_command(const std::string& command, std::vector<std::string>* commands) {
  if (std::ranges::find(*commands, command) == commands->end()) commands->push_back(command);
}

// The commands of the file, if it is missing. A download makes the folders of a pattern's files.
void add_commands(const RecipeFile& file, std::vector<std::string>* commands,
                  std::vector<fs::path>* made) {
  if (exists(file)) return;
  const bool is_pattern = is_file_pattern(file.path);
  const fs::path folder = is_pattern ? pattern_root(file.path) : fs::path(file.path).parent_path();
  const auto is_below = [&](const fs::path& other) {
    return (other.string() + "/").starts_with(folder.string() + "/");
  };
  const bool is_there =
      folder.empty() || fs::exists(folder) || std::ranges::any_of(*made, is_below);
  if (!is_pattern && !is_there)
    add_command(shell_command({"mkdir", "-p", folder.string()}), commands);
  made->push_back(folder);
  for (const std::string& command : file.commands) add_command(command, commands);
}

}  // namespace

RecipeFile trained_tokenizer(const std::string& path, int64_t vocab_size, const std::string& text) {
  return {path,
          "tokenizer",
          {shell_command({"./flat_tokens", "train", "--output=" + path,
                          fmt::format("--vocab_size={}", vocab_size), text})}};
}

RecipeFile built_tokens(const std::string& path, const std::string& tokenizer,
                        const std::vector<std::string>& options, const std::string& text) {
  std::vector<std::string> build = {"./flat_tokens", "build", "--output=" + path,
                                    "--tokenizer=" + tokenizer};
  build.insert(build.end(), options.begin(), options.end());
  build.push_back(text);
  return {path, "flat_tokens_path", {shell_command(build)}};
}

std::optional<MissingData> missing_files(const std::vector<RecipeFile>& sources,
                                         const std::vector<RecipeFile>& read, std::string advice) {
  const auto missing = std::ranges::find_if_not(read, exists);
  if (missing == read.end()) return std::nullopt;
  MissingData data{.what = what_is_missing(*missing), .advice = std::move(advice)};
  std::vector<fs::path> made;  // Folders.
  for (const RecipeFile& file : sources) add_commands(file, &data.commands, &made);
  for (const RecipeFile& file : read) add_commands(file, &data.commands, &made);
  return data;
}

}  // namespace tessera
