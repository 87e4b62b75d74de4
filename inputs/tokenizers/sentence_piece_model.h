// SPDX-License-Identifier: Apache-2.0
// What a SentencePiece model says, read from its file: its pieces and how it prepares text. The
// library keeps most of this to itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // How pieces write a space.

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
    // Whether text can become it: all but control and unknown pieces and bytes.
    bool is_text() const {
      return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
    }
  };

  Kind kind = Kind::kUnigram;
  std::vector<Piece> pieces;  // By id.
  bool has_byte_fallback = false;
  std::string unknown_text = " \xe2\x81\x87 ";  // What an unknown piece is decoded as.
  bool has_space_behind = false;                // A word's space is written behind it, not before.
  std::string normalization;  // The table of the normalizer; "": characters stay as they are.
  bool adds_space = true;     // Before a text, or behind it.
  bool removes_extra_spaces = true;
  bool marks_spaces = true;  // As kSpaceMark.
};

// Of a model that check_sentence_piece_model has passed. Errors begin with `where`.
SentencePieceFile parse_sentence_piece_model(std::string_view model, const std::string& where);

// The same model, but its normalizer leaves text as it is: for text that is normalized already.
std::string without_normalizer(std::string_view model, const std::string& where);

}  // namespace tessera
