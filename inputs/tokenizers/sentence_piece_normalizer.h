// SPDX-License-Identifier: Apache-2.0
// SentencePiece's normalization, done incrementally: the library's own normalizer uses about 30
// bytes of memory per byte of text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inputs/tokenizers/sentence_piece_model.h"

namespace tessera {

class SentencePieceNormalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceFile& file);

  // The state of normalizing one text.
  struct State {
    std::string_view rest;
    bool has_begun = false;
    bool is_after_space = false;
    bool is_done = false;
    int64_t spaces = 0;  // Pending: trailing spaces may be dropped.
  };
  static State start(std::string_view text) { return {.rest = text}; }
  // Appends to `out` until it has about `size` bytes or the text ends.
  void advance(State* state, size_t size, std::string* out) const;

 private:
  std::pair<std::string_view, size_t> prefix(std::string_view text) const;
  void begin(State* state, std::string* out) const;
  void write(std::string_view text, State* state, std::string* out) const;
  void end(State* state, std::string* out) const;

  SentencePieceTable table_;
  std::array<std::vector<std::string>, 256>
      symbols_;  // User-defined pieces by first byte, longest first.
  std::string_view space_;
  bool adds_space_;
  bool has_space_behind_;
  bool removes_extra_spaces_;
  bool marks_spaces_;
};

}  // namespace tessera
