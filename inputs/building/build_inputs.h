// SPDX-License-Identifier: Apache-2.0
// What a token file is built from: which files, how each is read, and what of it is held out for
// validation. Nothing is read but names, sizes and times.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

enum class SourceKind { kText, kJsonLines, kTokens };

// What of an input goes to the split `validation`.
enum class HoldOut {
  kNone,
  kWhole,
  kByDocument,  // The documents that is_held_out.
  kTail,        // The end of a text or of a run of tokens.
};

struct BuildInput {
  std::filesystem::path path;
  SourceKind kind = SourceKind::kText;
  HoldOut hold_out = HoldOut::kNone;
  int64_t bytes = 0;
};

struct BuildInputs {
  std::vector<BuildInput> inputs;  // In the order in which they enter the token file.
  std::string files;               // For people: which, and how many bytes.
  std::string held_out;            // And what of them is, such as ", the last 10 % held out".
  bool holds_out_a_share = false;  // Not whole inputs that are named for it, nor nothing.
  std::string fingerprint;         // Of names, sizes and times of change.
};

struct BuildInputOptions {
  // kAuto goes by names: *.bin holds tokens, *.jsonl and *.json are lines of JSON.
  enum class Format { kAuto, kText, kJsonLines, kTokens };
  Format format = Format::kAuto;
  double validation_fraction = 0.1;
  std::vector<std::string> validation;  // Held out whole; then no fraction of others is.
  bool texts_are_parted = false;        // By a separator.
  bool tokens_are_parted = false;       // By an id that ends documents.
};

// `paths` are files, folders and patterns (find_corpus_files).
BuildInputs find_build_inputs(const std::vector<std::string>& paths,
                              const BuildInputOptions& options);

}  // namespace tessera
