// SPDX-License-Identifier: Apache-2.0
// The contents of a SentencePiece model file: pieces and normalization, most of which the library
// does not expose. And the normalization itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // Stands for a space in pieces.

struct SentencePieceFile {
  enum class Kind { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,  // Always a token of its own.
    kUnused = 5,
    kByte = 6,
  };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
    // Whether text can be encoded as it: not control, unknown or byte pieces.
    bool is_text() const {
      return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
    }
  };

  Kind kind = Kind::kUnigram;
  std::vector<Piece> pieces;  // By id.
  bool has_byte_fallback = false;
  std::string unknown_text = " \xe2\x81\x87 ";  // The decoded unknown piece.
  bool has_space_behind = false;  // A word's space follows it instead of preceding it.
  std::string normalization;      // The table of the normalizer; "": none.
  bool adds_space = true;         // Before or after a text.
  bool removes_extra_spaces = true;
  bool marks_spaces = true;  // Writes spaces as kSpaceMark.
};

// Longest-prefix lookup in a double-array trie (Darts-clone) of replacements.
class SentencePieceTable {
 public:
  // `table` must be valid; "" is empty.
  explicit SentencePieceTable(std::string_view table);
  // Returns the length (0: none) of the longest key that is a prefix of the text, and its
  // replacement.
  std::pair<size_t, std::string_view> longest(std::string_view text) const;

  // Returns whether every offset is in bounds: lookups do not check.
  static bool is_valid(std::string_view table);

 private:
  uint32_t unit(uint64_t index) const;

  std::string units_;
  std::string texts_;
};

// Parses a model. Error, prefixed with `where`, if it is damaged: the library does not validate
// models, but trusts offsets in the normalization table and aborts on invalid data.
SentencePieceFile parse_sentence_piece_model(std::string_view model, const std::string& where);

// Returns the model without normalization, for text that is normalized already.
std::string without_normalizer(std::string_view model, const std::string& where);

// SentencePiece's normalization, done incrementally: the library's own normalizer uses about 30
// bytes of memory per byte of text.
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
