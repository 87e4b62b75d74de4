// SPDX-License-Identifier: Apache-2.0
// The tokenizer files of an exported model: those from which the run's tokenizer was made, and a
// tokenizer.json made from a SentencePiece model.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "inputs/tokenizers/tokenizer.h"
#include "tasks/interop/hf_model.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

struct HfTokenizer {
  std::map<std::string, std::string> files;  // Content by file name.
  HfSpecialIds special;
  std::string remark;  // Why there are no files, or "".
};

// The run's tokenizer, or else that of the training input, whose data must then exist; if they do
// not, the remark says so.
HfTokenizer hf_tokenizer_of(const ExperimentConfig& experiment,
                            const std::filesystem::path& run_directory);
HfTokenizer hf_tokenizer_of(const Tokenizer& tokenizer);

// Converts a SentencePiece model to a tokenizer.json for the library `tokenizers` that gives the
// same ids, because transformers does not read SentencePiece models by default.

struct HfSentencePiece {
  std::string json;    // "" if the library cannot reproduce this model's ids;
  std::string reason;  // then the reason.
};

// Errors begin with `where`.
HfSentencePiece hf_sentence_piece(std::string_view model, const std::string& where);

}  // namespace tessera
