// SPDX-License-Identifier: Apache-2.0
// Trains a byte-level BPE tokenizer of text, and writes it as a tokenizer.json of Hugging Face's
// tokenizers library, with the same contents as that library's BpeTrainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "inputs/readers/document_reader.h"
#include "inputs/tokenizers/byte_bpe_trainer.h"
#include "inputs/tokenizers/word_scanner.h"

namespace tessera {

struct TrainByteBpeOptions {
  ByteBpeOptions model;
  WordPattern pattern = WordPattern::kCl100k;  // Splits text into words.
  int threads = 1;                             // The result does not depend on it.
  ReadOptions read;
};

struct TrainedByteBpe {
  int64_t documents = 0;
  int64_t words = 0;  // Distinct ones.
  int64_t tokens = 0;
};

// Writes the tokenizer to `output` atomically.
TrainedByteBpe train_byte_bpe(const std::vector<std::filesystem::path>& files,
                              const TrainByteBpeOptions& options,
                              const std::filesystem::path& output);

}  // namespace tessera
