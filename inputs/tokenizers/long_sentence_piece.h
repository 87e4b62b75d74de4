// SPDX-License-Identifier: Apache-2.0
// Long texts through the SentencePiece library, which takes a hundred bytes of memory for each byte
// of text, and for BPE more time than in proportion. They are normalized and encoded in pieces, cut
// where no token can lie across.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/tokenizers/sentence_piece_normalizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace tessera {

// Lengths of a piece, in bytes of normalized text. It ends at the last place to cut within `usual`,
// else at the first place after that, and after `most` bytes in any case.
struct SentencePieceCut {
  size_t usual = size_t{1} << 12;
  size_t most = size_t{1} << 17;
};

// Const calls may run on several threads at once.
class LongSentencePiece {
 public:
  // Of a model that check_sentence_piece_model has passed. Errors begin with `where`.
  LongSentencePiece(std::string_view model, const std::string& where,
                    const SentencePieceCut& cut = {});
  ~LongSentencePiece();

  void encode(std::string_view text, std::vector<int32_t>* ids) const;

 private:
  LongSentencePiece(const SentencePieceFile& file, std::string_view model, const std::string& where,
                    const SentencePieceCut& cut);
  bool may_cross(std::string_view text, size_t at) const;
  size_t cut_of(std::string_view text) const;
  void encode_piece(std::string_view normalized, bool is_first, std::vector<int32_t>* ids) const;

  std::string where_;
  SentencePieceCut cut_;
  SentencePieceFile::Kind kind_;
  bool has_byte_fallback_;
  SentencePieceNormalizer normalizer_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;  // Without normalizer.
  std::vector<uint64_t> neighbours_;  // Sorted: two characters that are side by side in a piece.
};

}  // namespace tessera
