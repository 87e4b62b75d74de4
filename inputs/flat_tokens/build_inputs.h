// SPDX-License-Identifier: Apache-2.0
// The inputs of a token file: which files, how each is read, and which part becomes the validation
// split. Reads only names, sizes and times.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

enum class SourceKind { kText, kJsonLines, kTokens };

// The part of an input that goes to the validation split.
enum class ValidationPart {
  kNone,
  kWhole,
  kByDocument,  // The documents chosen by in_validation_split.
  kTail,        // The end of a text or of a token sequence.
};

struct BuildInput {
  std::filesystem::path path;
  SourceKind kind = SourceKind::kText;
  ValidationPart validation_part = ValidationPart::kNone;
  int64_t bytes = 0;
};

struct BuildInputs {
  std::vector<BuildInput> inputs;  // In the order of the output.
  std::string files;               // Description of the files and their size.
  std::string held_out;  // Description of the validation split: ", the last 10 % held out".
  bool splits_by_fraction = false;  // A fraction, rather than named files or nothing.
  std::string fingerprint;          // Of names, sizes and modification times.
};

struct BuildInputOptions {
  // Of all inputs. Unset: *.bin holds tokens; *.jsonl, *.ndjson and *.json are lines of JSON; all
  // others are text.
  std::optional<SourceKind> format;
  double validation_fraction = 0.1;
  std::filesystem::path root = std::filesystem::current_path();  // Of the names that are hashed.
  std::vector<std::string>
      validation;                     // Files for the validation split, which replace the fraction.
  bool texts_have_separator = false;  // Documents in texts end at a separator.
  bool tokens_have_end_id = false;    // Documents in token inputs end with an id.
};

// `paths`: files, folders and patterns (find_text_files).
BuildInputs find_build_inputs(const std::vector<std::string>& paths,
                              const BuildInputOptions& options);

}  // namespace tessera
