// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/build_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "inputs/readers/document_reader.h"
#include "inputs/readers/text_files.h"
#include "inputs/validation_split.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
SourceKind kind_of(const fs::path& path) {
  if (path.extension() == ".bin") return SourceKind::kTokens;
  const bool is_json = document_format(path) == DocumentFormat::kJsonLines;
  return is_json ? SourceKind::kJsonLines : SourceKind::kText;
}

// Appends the identity of the file (path, size, time) to `seen`.
BuildInput input_of(const fs::path& path, std::optional<SourceKind> format, std::string* seen) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  BuildInput input{path, format.value_or(kind_of(path)), ValidationPart::kNone, status.st_size};
  *seen += fmt::format("{} {} {}.{:09}\n", fs::absolute(path).lexically_normal().string(),
                       input.bytes, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  return input;
}

// Separate documents are chosen one by one, texts as whole files if there are
// several, else the tail of the input.
void assign_validation_parts(const BuildInputOptions& options, std::vector<BuildInput>* inputs) {
  if (options.validation_fraction <= 0.0) return;
  std::vector<fs::path> texts;
  for (BuildInput& input : *inputs) {
    const bool is_text = input.kind == SourceKind::kText;
    const bool has_documents =
        is_text ? options.texts_have_separator
                : input.kind != SourceKind::kTokens || options.tokens_have_end_id;
    input.validation_part = has_documents ? ValidationPart::kByDocument : ValidationPart::kTail;
    if (is_text && !has_documents) texts.push_back(input.path);
  }
  if (texts.size() < 2) return;
  const std::set<fs::path> chosen =
      validation_files(texts, options.root, options.validation_fraction);
  for (BuildInput& input : *inputs)
    if (input.validation_part == ValidationPart::kTail && input.kind == SourceKind::kText)
      input.validation_part =
          chosen.contains(input.path) ? ValidationPart::kWhole : ValidationPart::kNone;
}

std::string describe_validation(const BuildInputs& built, const BuildInputOptions& options) {
  if (!options.validation.empty()) return "";
  if (options.validation_fraction <= 0.0) return ", none held out";
  const std::string share = fmt::format("{:g} %", 100.0 * options.validation_fraction);
  std::set<ValidationPart> ways;
  for (const BuildInput& input : built.inputs) ways.insert(input.validation_part);
  if (ways.size() == 1 && ways.contains(ValidationPart::kTail))
    return fmt::format(", the last {} held out", share);
  if (ways.size() == 1 && ways.contains(ValidationPart::kByDocument))
    return fmt::format(", documents of about {} held out", share);
  return fmt::format(", about {} held out", share);
}

std::string files_text(const BuildInputs& built) {
  int64_t bytes = 0;
  for (const BuildInput& input : built.inputs) bytes += input.bytes;
  const std::string first = fs::absolute(built.inputs[0].path).lexically_normal().string();
  const std::string files = built.inputs.size() == 1
                                ? first
                                : fmt::format("{} files from {} on", built.inputs.size(), first);
  return fmt::format("{} ({} bytes)", files, bytes);
}

}  // namespace

BuildInputs find_build_inputs(const std::vector<std::string>& paths,
                              const BuildInputOptions& options) {
  check_validation_fraction(options.validation_fraction);
  BuildInputs built;
  std::string seen;
  for (const fs::path& path : find_text_files(paths))
    built.inputs.push_back(input_of(path, options.format, &seen));
  if (built.inputs.empty()) fail("no text to build tokens from in {}", fmt::join(paths, ", "));
  if (options.validation.empty()) assign_validation_parts(options, &built.inputs);
  std::set<fs::path> for_training;
  for (const BuildInput& input : built.inputs) for_training.insert(fs::canonical(input.path));
  if (!options.validation.empty()) {
    for (const fs::path& path : find_text_files(options.validation)) {
      if (for_training.contains(fs::canonical(path)))
        fail("{}: is both a training input and in --validation", path.string());
      built.inputs.push_back(input_of(path, options.format, &seen));
      built.inputs.back().validation_part = ValidationPart::kWhole;
    }
  }
  built.validation_note = describe_validation(built, options);
  built.splits_by_fraction = options.validation.empty() && options.validation_fraction > 0.0;
  built.files = files_text(built);
  built.fingerprint = fmt::format("{} files, {:08x}{:08x}", built.inputs.size(),
                                  crc32c(std::as_bytes(std::span(seen))),
                                  crc32c(std::as_bytes(std::span(seen)), 1));
  return built;
}

}  // namespace tessera
