// SPDX-License-Identifier: Apache-2.0
// Trains a SentencePiece model of text with the SentencePiece library. Decoding is lossless: no
// normalization, white space is kept, and characters without a piece become bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "inputs/readers/document_reader.h"

namespace tessera {

enum class SentencePieceModel { kUnigram, kBpe };

struct TrainSentencePieceOptions {
  SentencePieceModel model = SentencePieceModel::kUnigram;
  int64_t vocab_size = 8000;  // Including 256 bytes, <unk>, <s> and </s>.
  // Fraction of characters that get a piece; the rest become bytes.
  double character_coverage = 0.9995;
  int64_t max_lines = 1000000;  // A larger input is sampled, deterministically.
  ReadOptions read;
};

struct TrainedSentencePiece {
  int64_t documents = 0;
  int64_t lines = 0;  // Lines of text, into which documents are cut.
  CorruptRecordCount skipped;
};

// Writes the model to `output` atomically. Deterministic.
TrainedSentencePiece train_sentence_piece(const std::vector<std::filesystem::path>& files,
                                          const TrainSentencePieceOptions& options,
                                          const std::filesystem::path& output);

}  // namespace tessera
