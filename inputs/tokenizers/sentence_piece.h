// SPDX-License-Identifier: Apache-2.0
// SentencePiece models (*.model), run by the SentencePiece library. Bytes that are not UTF-8 are
// encoded as U+FFFD, as in the library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/tokenizers/sentence_piece_model.h"
#include "inputs/tokenizers/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace tessera {

// Chunk sizes in bytes of normalized text. A chunk ends at the last good cut within `usual`, else
// at the next one, and at `most` in any case.
struct ChunkLimits {
  size_t usual = size_t{1} << 12;
  size_t most = size_t{1} << 17;
};

// Encodes long texts in chunks, cut where no token can span, because the library uses about 100
// bytes of memory per byte of text and superlinear time for BPE. Const calls are thread-safe.
class ChunkedSentencePiece {
 public:
  // Errors are prefixed with `where`.
  ChunkedSentencePiece(std::string_view model, const std::string& where,
                       const ChunkLimits& cut = {});
  ~ChunkedSentencePiece();

  void encode(std::string_view text, std::vector<int32_t>* ids) const;

 private:
  ChunkedSentencePiece(const SentencePieceFile& file, std::string_view model,
                       const std::string& where, const ChunkLimits& cut);
  bool may_cross(std::string_view text, size_t at) const;
  size_t cut_of(std::string_view text) const;
  void encode_piece(std::string_view normalized, bool is_first, std::vector<int32_t>* ids) const;

  std::string where_;
  ChunkLimits cut_;
  SentencePieceFile::Kind kind_;
  bool has_byte_fallback_;
  SentencePieceNormalizer normalizer_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;  // Without normalizer.
  std::vector<uint64_t> neighbours_;  // Sorted pairs of characters that are adjacent in some piece.
};

// Makes a tokenizer; `files` has tokenizer.model.
std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const std::string& name,
                                                         const TokenizerFiles& files);

}  // namespace tessera
