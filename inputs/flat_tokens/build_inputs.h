// SPDX-License-Identifier: Apache-2.0
// The request for a token file: which files, how each is read, and which part becomes the
// validation split. Finding the files reads only names, sizes and times.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/readers/document_reader.h"

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
  std::string validation_note;  // Description of the validation split: ", the last 10 % held out".
  bool splits_by_fraction = false;  // A fraction, rather than named files or nothing.
  std::string fingerprint;          // Of names, sizes and modification times.
};

struct BuildInputOptions {
  // Of all inputs. Unset: *.bin holds tokens; *.jsonl, *.ndjson and *.json are lines of JSON; all
  // others are text.
  std::optional<SourceKind> format;
  double validation_fraction = 0.1;
  std::filesystem::path root = std::filesystem::current_path();  // Of the names that are hashed.
  std::vector<std::string> validation;  // Files for the split, instead of the fraction.
  bool texts_have_separator = false;    // Documents in texts end at a separator.
  bool tokens_have_end_id = false;      // Documents in token inputs end with an id.
};

// `paths`: files, folders and patterns (find_text_files).
BuildInputs find_build_inputs(const std::vector<std::string>& paths,
                              const BuildInputOptions& options);

// What to build, and how.
struct TokenBuild {
  BuildInputs from;
  std::filesystem::path output;
  const Tokenizer* tokenizer = nullptr;  // May be null if all inputs are tokens.
  TokenizerIdentity identity;            // Recorded in the file.
  std::optional<int32_t> document_end;   // Appended to each text.
  std::optional<int32_t> end_of_tokens;  // The id that ends documents of token inputs.
  ReadOptions read;
  double validation_fraction = 0.1;
  int64_t max_tokens = -1;  // Per split; -1: no limit.
  int compression = 0;      // Deflate level 1-9; 0: none.
  int threads = 1;

  // Granularity of work and of resuming; small in tests.
  int64_t unit_bytes = int64_t{64} << 20;  // Inputs are grouped into units of about this size.
  int64_t batch_bytes = int64_t{1} << 20;  // Of text per batch.
  int64_t checkpoint_bytes = int64_t{256} << 20;  // Of text between two lines of the journal.
  // Set by a signal handler: the build stops with an Error and can be resumed.
  const std::atomic<bool>* stop = nullptr;
};

}  // namespace tessera
