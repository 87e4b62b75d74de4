// SPDX-License-Identifier: Apache-2.0
// Makes a SentencePiece model of text, by the SentencePiece library. Text comes back as it was:
// nothing is normalized, white space is kept, and what has no piece is written as bytes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/document_reader.h"

namespace tessera {

enum class SentencePieceModel { kUnigram, kBpe };

constexpr std::array<EnumName<SentencePieceModel>, 2> enum_names(SentencePieceModel) {
  return {{{SentencePieceModel::kUnigram, "unigram"}, {SentencePieceModel::kBpe, "bpe"}}};
}

struct TrainSentencePieceOptions {
  SentencePieceModel model = SentencePieceModel::kUnigram;
  int64_t vocab_size = 8000;  // With 256 bytes, <unk>, <s> and </s>.
  // Characters that get a piece, as a part of all characters of the text; the rest are bytes.
  double character_coverage = 0.9995;
  int64_t max_lines = 1000000;  // Drawn at random from all, always the same ones.
  ReadOptions read;
};

struct TrainedSentencePiece {
  int64_t documents = 0;
  int64_t lines = 0;  // Of text; what a document is cut into.
  SkipCounts skipped;
};

// Writes the model to `output`, in one step. The same files give the same model.
TrainedSentencePiece train_sentence_piece(const std::vector<std::filesystem::path>& files,
                                          const TrainSentencePieceOptions& options,
                                          const std::filesystem::path& output);

}  // namespace tessera
