// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/build_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "inputs/document_reader.h"
#include "inputs/held_out.h"
#include "inputs/text_corpus.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Format = BuildInputOptions::Format;

SourceKind kind_of(const fs::path& path, Format format) {
  switch (format) {
    case Format::kText:
      return SourceKind::kText;
    case Format::kJsonLines:
      return SourceKind::kJsonLines;
    case Format::kTokens:
      return SourceKind::kTokens;
    case Format::kAuto:
      break;
  }
  if (path.extension() == ".bin") return SourceKind::kTokens;
  const bool is_json = document_format(path) == DocumentFormat::kJsonLines;
  return is_json ? SourceKind::kJsonLines : SourceKind::kText;
}

// Adds to `seen` what tells this file, as it is now, from others.
BuildInput input_of(const fs::path& path, Format format, std::string* seen) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  BuildInput input{path, kind_of(path, format), HoldOut::kNone, status.st_size};
  *seen += fmt::format("{} {} {}.{:09}\n", fs::absolute(path).lexically_normal().string(),
                       input.bytes, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  return input;
}

// Whole texts are held out as split_corpus says; all else by itself.
void hold_out(const BuildInputOptions& options, std::vector<BuildInput>* inputs) {
  if (options.validation_fraction <= 0.0) return;
  std::vector<fs::path> texts;
  for (BuildInput& input : *inputs) {
    const bool is_text = input.kind == SourceKind::kText;
    const bool is_parted = is_text ? options.texts_are_parted
                                   : input.kind != SourceKind::kTokens || options.tokens_are_parted;
    input.hold_out = is_parted ? HoldOut::kByDocument : HoldOut::kTail;
    if (is_text && !is_parted) texts.push_back(input.path);
  }
  if (texts.size() < 2) return;
  const Corpus corpus = split_corpus(texts, fs::current_path(), options.validation_fraction);
  std::set<fs::path> held_out;
  for (const Document& document : corpus.validation) held_out.insert(document.file);
  for (BuildInput& input : *inputs)
    if (input.hold_out == HoldOut::kTail && input.kind == SourceKind::kText)
      input.hold_out = held_out.contains(input.path) ? HoldOut::kWhole : HoldOut::kNone;
}

std::string held_out_text(const BuildInputs& built, const BuildInputOptions& options) {
  if (!options.validation.empty()) return "";
  if (options.validation_fraction <= 0.0) return ", none held out";
  const std::string share = fmt::format("{:g} %", 100.0 * options.validation_fraction);
  std::set<HoldOut> ways;
  for (const BuildInput& input : built.inputs) ways.insert(input.hold_out);
  if (ways.size() == 1 && ways.contains(HoldOut::kTail))
    return fmt::format(", the last {} held out", share);
  if (ways.size() == 1 && ways.contains(HoldOut::kByDocument))
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
  for (const fs::path& path : find_corpus_files(paths))
    built.inputs.push_back(input_of(path, options.format, &seen));
  if (built.inputs.empty()) fail("no text to build tokens from in {}", fmt::join(paths, ", "));
  if (options.validation.empty()) hold_out(options, &built.inputs);
  std::set<fs::path> for_training;
  for (const BuildInput& input : built.inputs) for_training.insert(fs::canonical(input.path));
  if (!options.validation.empty()) {
    for (const fs::path& path : find_corpus_files(options.validation)) {
      if (for_training.contains(fs::canonical(path)))
        fail("{}: is both to be trained on and held out by --validation", path.string());
      built.inputs.push_back(input_of(path, options.format, &seen));
      built.inputs.back().hold_out = HoldOut::kWhole;
    }
  }
  built.held_out = held_out_text(built, options);
  built.holds_out_a_share = options.validation.empty() && options.validation_fraction > 0.0;
  built.files = files_text(built);
  built.fingerprint = fmt::format("{} files, {:08x}{:08x}", built.inputs.size(),
                                  crc32c(std::as_bytes(std::span(seen))),
                                  crc32c(std::as_bytes(std::span(seen)), 1));
  return built;
}

}  // namespace tessera
