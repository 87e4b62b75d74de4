// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/run_tokenizer.h"

#include <string>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

// The file: a line with the format, a line with the name, then the definition.
constexpr std::string_view kHeading = "tessera tokenizer 1\n";

std::filesystem::path file_of(const std::filesystem::path& run_directory) {
  return run_directory / "tokenizer";
}

}  // namespace

void write_run_tokenizer(const std::filesystem::path& run_directory, const Tokenizer& tokenizer) {
  std::string name = tokenizer.name();
  for (char& c : name)
    if (c == '\n') c = ' ';
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
    fail("{} is no tokenizer that a run has kept; expected it to begin with '{}'", file.string(),
         kHeading.substr(0, kHeading.size() - 1));
  const ErrorPrefix where(file.string());
  return tokenizer_of_definition(text.substr(kHeading.size(), end - kHeading.size()),
                                 text.substr(end + 1));
}

}  // namespace tessera
