// SPDX-License-Identifier: Apache-2.0
// How SentencePiece prepares text, done step by step so that a long text never has to be prepared
// as a whole: the library's own normalizer takes about thirty bytes of memory for each byte.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inputs/tokenizers/sentence_piece_model.h"

namespace tessera {

// Longest match first in a double array (Darts-clone), with what each key becomes.
class SentencePieceTable {
 public:
  // Of a table that check_sentence_piece_model has passed; "" has no keys.
  explicit SentencePieceTable(std::string_view table);
  // How many bytes of the text's beginning are replaced, and by what; 0 for none.
  std::pair<size_t, std::string_view> longest(std::string_view text) const;

 private:
  uint32_t unit(uint64_t index) const;

  std::string units_;
  std::string texts_;
};

class SentencePieceNormalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceFile& file);

  // Of one text: where it is in it, and what it has still to write.
  struct State {
    std::string_view rest;
    bool has_begun = false;
    bool is_after_space = false;
    bool is_done = false;
    int64_t spaces = 0;  // Held back: at the end of a text they may not be written.
  };
  static State start(std::string_view text) { return {.rest = text}; }
  // Appends to `out` until it has `size` bytes or a few more, or all is done.
  void advance(State* state, size_t size, std::string* out) const;

 private:
  std::pair<std::string_view, size_t> prefix(std::string_view text) const;
  void begin(State* state, std::string* out) const;
  void write(std::string_view text, State* state, std::string* out) const;
  void end(State* state, std::string* out) const;

  SentencePieceTable table_;
  std::array<std::vector<std::string>, 256>
      symbols_;  // User-defined, by first byte; longest first.
  std::string_view space_;
  bool adds_space_;
  bool has_space_behind_;
  bool removes_extra_spaces_;
  bool marks_spaces_;
};

}  // namespace tessera
