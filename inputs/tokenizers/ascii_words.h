// SPDX-License-Identifier: Apache-2.0
// Finds the words of ASCII text 64 bytes at a time: each class of bytes is a mask of 64 bits, and
// the rules of a pattern are bit arithmetic on these masks. word_scanner.h decides the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

// What distinguishes the word patterns on ASCII text.
struct AsciiRules {
  enum class Contraction {
    kNone,
    kLowerWord,  // A word, in lower case only.
    kWord,       // A word.
    kSuffix,     // Belongs to the word before.
  };
  Contraction contraction = Contraction::kNone;
  bool has_lines = true;  // Any character but a digit or line end leads the letters after it; line
                          // ends stay with the sign before, and others end a run of white space.
                          // Else only a space leads, and it leads every kind of word.
  bool is_cased = false;  // A capital after a small letter begins a word, and a slash stays with
                          // the line ends before it.
  int most_digits = 3;    // 3, 1, or 0: no limit.
};

// A buffer for this many ends of words is enough for a call.
inline constexpr size_t kMostWordEnds = 68;

// Writes the ends of the next words from `at`, where a word begins, and returns their number: 0 if
// the first word needs more than 64 ASCII bytes of context.
size_t find_ascii_words(const AsciiRules& rules, std::string_view text, size_t at, size_t* ends);

}  // namespace tessera
