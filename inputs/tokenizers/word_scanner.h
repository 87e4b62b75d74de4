// SPDX-License-Identifier: Apache-2.0
// Hand-written scanners for the word patterns of well-known tokenizers, in linear time; ASCII text
// is scanned by windows (ascii_words.cc). Other patterns use pattern.h.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "inputs/tokenizers/unicode.h"

namespace tessera {

enum class WordPattern {
  kGpt2,      // GPT-2, RoBERTa, GPT-NeoX, OPT
  kCl100k,    // cl100k_base; Llama 3
  kQwen2,     // cl100k with single digits.
  kO200k,     // o200k_base, gpt-oss
  kQwen35,    // Qwen 2 with marks as letters.
  kTekken,    // o200k with single digits and without contractions.
  kDeepSeek,  // The last step of DeepSeek 3; it matches no digits.
};

// Returns the known pattern with exactly this source; nullopt if no known pattern matches.
std::optional<WordPattern> known_pattern(std::string_view regular_expression);
// Returns the source of a pattern.
std::string_view pattern_source(WordPattern pattern);

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

// Returns the length of 's 't 're 've 'm 'll 'd at text[at], or 0. With `any_case`, case is
// ignored, and long s (U+017F) folds to s.
size_t contraction_length(std::string_view text, size_t at, bool any_case);

// Finds the ends of words. Stateless: scanning may start at any word.
class WordScanner {
  static constexpr CharacterClasses kLetter = unicode_class::kLetter;
  static constexpr CharacterClasses kMark = unicode_class::kMark;

 public:
  explicit WordScanner(WordPattern pattern);

  // Writes the ends of the next words from `at`, where a word begins, and returns their number, at
  // most kMostWordEnds and at least one. A run without a match is a word.
  size_t next_words(std::string_view text, size_t at, size_t* ends) const;

  // Visits the words of the text in order; they cover it.
  template <typename Take>
  void for_each_word(std::string_view text, const Take& take) const {
    std::array<size_t, kMostWordEnds> ends;
    for (size_t at = 0; at < text.size();) {
      const size_t count = next_words(text, at, ends.data());
      for (size_t i = 0; i < count; ++i) {
        take(text.substr(at, ends[i] - at));
        at = ends[i];
      }
    }
  }

 private:
  // The end of one word.
  size_t end_of_word(std::string_view text, size_t at) const;
  size_t end_gpt2(std::string_view text, size_t at) const;
  size_t end_cl100k(std::string_view text, size_t at, CharacterClasses letters,
                    int most_digits) const;
  size_t end_o200k(std::string_view text, size_t at, int most_digits) const;
  size_t end_deepseek(std::string_view text, size_t at) const;

  size_t match_deepseek(std::string_view text, size_t at) const;
  size_t end_of_cased_word(std::string_view text, size_t at) const;
  size_t end_of_lower_part(std::string_view text, size_t at) const;
  size_t end_of_upper_part(std::string_view text, size_t at) const;

  // Returns 0 at the end of the text.
  CharacterClasses class_at(std::string_view text, size_t at, size_t* length) const {
    *length = 0;
    return at < text.size() ? classes_.at(text, at, length) : 0;
  }
  // Returns the end of the run of characters with one of the classes.
  size_t run(std::string_view text, size_t at, CharacterClasses kinds) const {
    size_t length = 0;
    while (at < text.size() && (classes_.at(text, at, &length) & kinds) != 0) at += length;
    return at;
  }
  size_t run_of_digits(std::string_view text, size_t at, int most) const;
  size_t end_of_others(std::string_view text, size_t at, CharacterClasses not_others) const;
  size_t end_of_space(std::string_view text, size_t at, bool to_lines) const;

  WordPattern pattern_;
  std::optional<AsciiRules> ascii_;
  const UnicodeClasses& classes_;
};

}  // namespace tessera
