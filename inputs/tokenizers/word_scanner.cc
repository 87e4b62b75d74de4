// SPDX-License-Identifier: Apache-2.0
// The scanners follow their patterns alternative by alternative; comments give the result where a
// pattern would backtrack. Tests compare with Oniguruma on the same patterns.
#include "inputs/tokenizers/word_scanner.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tessera {
namespace {

using unicode_class::kLineEnd;
using unicode_class::kLower;
using unicode_class::kNumber;
using unicode_class::kPunctuation;
using unicode_class::kSpace;
using unicode_class::kSymbol;
using unicode_class::kUpper;

// The patterns as written in tokenizer.json files and tiktoken, including equivalent variants.
constexpr std::array<std::pair<std::string_view, WordPattern>, 10> kKnown = {{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     WordPattern::kGpt2},
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     WordPattern::kGpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
     WordPattern::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordPattern::kCl100k},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     WordPattern::kCl100k},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordPattern::kQwen2},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordPattern::kO200k},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordPattern::kQwen35},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordPattern::kTekken},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordPattern::kDeepSeek},
}};

char byte_at(std::string_view text, size_t at) { return at < text.size() ? text[at] : '\0'; }

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

bool is_ascii_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// DeepSeek's signs and letters have other rules.
std::optional<AsciiRules> rules_of(WordPattern pattern) {
  using Contraction = AsciiRules::Contraction;
  switch (pattern) {
    case WordPattern::kGpt2:
      return AsciiRules{Contraction::kLowerWord, false, false, 0};
    case WordPattern::kCl100k:
      return AsciiRules{Contraction::kWord, true, false, 3};
    case WordPattern::kQwen2:
    case WordPattern::kQwen35:
      return AsciiRules{Contraction::kWord, true, false, 1};
    case WordPattern::kO200k:
      return AsciiRules{Contraction::kSuffix, true, true, 3};
    case WordPattern::kTekken:
      return AsciiRules{Contraction::kNone, true, true, 1};
    case WordPattern::kDeepSeek:
      return std::nullopt;
  }
  return std::nullopt;
}

// Returns whether windows of ASCII text help at the beginning of a word.
bool is_ascii_word(std::string_view text, size_t at) {
  return is_ascii(text[at]) && is_ascii(byte_at(text, at + 1));
}

}  // namespace

size_t contraction_length(std::string_view text, size_t at, bool any_case) {
  if (byte_at(text, at) != '\'') return 0;
  const auto letter = [&](size_t index) {
    return any_case ? lower_ascii(byte_at(text, index)) : byte_at(text, index);
  };
  const char first = letter(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(at + 2);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  return any_case && text.substr(at + 1, 2) == "\xc5\xbf" ? 3 : 0;
}

std::optional<WordPattern> known_pattern(std::string_view regular_expression) {
  std::string escaped;  // Some files have line ends themselves in the sets.
  for (const char c : regular_expression) {
    if (c == '\r')
      escaped += "\\r";
    else if (c == '\n')
      escaped += "\\n";
    else
      escaped += c;
  }
  for (const auto& [text, pattern] : kKnown)
    if (text == escaped) return pattern;
  return std::nullopt;
}

std::string_view pattern_source(WordPattern pattern) {
  return std::ranges::find(kKnown, pattern, &std::pair<std::string_view, WordPattern>::second)
      ->first;
}

WordScanner::WordScanner(WordPattern pattern)
    : pattern_(pattern), ascii_(rules_of(pattern)), classes_(UnicodeClasses::get()) {}

size_t WordScanner::end_of_word(std::string_view text, size_t at) const {
  if (!ascii_) return end_deepseek(text, at);
  if (!ascii_->has_lines) return end_gpt2(text, at);
  if (ascii_->is_cased) return end_o200k(text, at, ascii_->most_digits);
  const CharacterClasses letters = pattern_ == WordPattern::kQwen35 ? kLetter | kMark : kLetter;
  return end_cl100k(text, at, letters, ascii_->most_digits);
}

size_t WordScanner::next_words(std::string_view text, size_t at, size_t* ends) const {
  if (ascii_ && is_ascii_word(text, at))
    if (const size_t count = find_ascii_words(*ascii_, text, at, ends)) return count;
  size_t count = 0;
  do {
    ends[count++] = at = end_of_word(text, at);
  } while (count < kMostWordEnds && at < text.size() && !(ascii_ && is_ascii_word(text, at)));
  return count;
}

size_t WordScanner::run_of_digits(std::string_view text, size_t at, int most) const {
  size_t length = 0;
  for (int i = 0; i < most && (class_at(text, at, &length) & kNumber) != 0; ++i) at += length;
  return at;
}

//  ?[^\s\p{L}\p{N}]+ . 0: no match.
size_t WordScanner::end_of_others(std::string_view text, size_t at,
                                  CharacterClasses not_others) const {
  const size_t from = text[at] == ' ' ? at + 1 : at;
  size_t end = from, length = 0;
  while (end < text.size() && (classes_.at(text, end, &length) & not_others) == 0) end += length;
  return end > from ? end : 0;
}

// \s+(?!\S)|\s+ : the run without its last character, if text follows. With `to_lines`, first
// \s*[\r\n]+ : up to the last line end of the run, if any.
size_t WordScanner::end_of_space(std::string_view text, size_t at, bool to_lines) const {
  size_t length = 0;
  size_t last = at;
  size_t lines = at;
  size_t end = at;
  while (end < text.size()) {
    const CharacterClasses kind = classes_.at(text, end, &length);
    if ((kind & kSpace) == 0) break;
    last = end;
    end += length;
    if ((kind & kLineEnd) != 0) lines = end;
  }
  if (to_lines && lines > at) return lines;
  return end == text.size() || last == at ? end : last;
}

size_t WordScanner::end_gpt2(std::string_view text, size_t at) const {
  if (const size_t length = contraction_length(text, at, false)) return at + length;
  const size_t from = text[at] == ' ' ? at + 1 : at;
  size_t length = 0;
  const CharacterClasses kind = class_at(text, from, &length);
  if ((kind & kLetter) != 0) return run(text, from + length, kLetter);
  if ((kind & kNumber) != 0) return run(text, from + length, kNumber);
  if (const size_t end = end_of_others(text, at, kLetter | kNumber | kSpace)) return end;
  return end_of_space(text, at, false);
}

size_t WordScanner::end_cl100k(std::string_view text, size_t at, CharacterClasses letters,
                               int most_digits) const {
  if (const size_t length = contraction_length(text, at, true)) return at + length;
  size_t length = 0;
  const CharacterClasses kind = class_at(text, at, &length);
  if ((kind & letters) != 0) return run(text, at + length, letters);
  if ((kind & kNumber) != 0) return run_of_digits(text, at, most_digits);
  const size_t word = at + length;
  if ((kind & kLineEnd) == 0 && (class_at(text, word, &length) & letters) != 0)
    return run(text, word + length, letters);
  if (const size_t end = end_of_others(text, at, letters | kNumber | kSpace))
    return run(text, end, kLineEnd);
  return end_of_space(text, at, true);
}

// [upper]*[lower]+ : backtracks to the last character in both classes. 0: no match.
size_t WordScanner::end_of_lower_part(std::string_view text, size_t at) const {
  size_t length = 0;
  size_t last_of_both = 0;
  size_t end = at;
  while (end < text.size()) {
    const CharacterClasses kind = classes_.at(text, end, &length);
    if ((kind & kUpper) == 0) break;
    end += length;
    if ((kind & kLower) != 0) last_of_both = end;
  }
  const size_t lower = run(text, end, kLower);
  return lower > end ? lower : last_of_both;
}

// [upper]+[lower]* . 0: no match.
size_t WordScanner::end_of_upper_part(std::string_view text, size_t at) const {
  const size_t upper = run(text, at, kUpper);
  return upper == at ? 0 : run(text, upper, kLower);
}

// The first two alternatives of o200k, each first with an optional leading non-letter, then
// without. A mark can be both the leading character and part of the word. 0: no match.
size_t WordScanner::end_of_cased_word(std::string_view text, size_t at) const {
  size_t length = 0;
  const CharacterClasses kind = class_at(text, at, &length);
  const bool may_lead = (kind & (kLetter | kNumber | kLineEnd)) == 0;
  const size_t after = at + length;
  size_t end = may_lead ? end_of_lower_part(text, after) : 0;
  if (end == 0) end = end_of_lower_part(text, at);
  if (end == 0 && may_lead) end = end_of_upper_part(text, after);
  if (end == 0) end = end_of_upper_part(text, at);
  return end;
}

size_t WordScanner::end_o200k(std::string_view text, size_t at, int most_digits) const {
  if (const size_t end = end_of_cased_word(text, at))
    return pattern_ == WordPattern::kTekken ? end : end + contraction_length(text, end, true);
  size_t length = 0;
  if ((class_at(text, at, &length) & kNumber) != 0) return run_of_digits(text, at, most_digits);
  if (size_t end = end_of_others(text, at, kLetter | kNumber | kSpace)) {
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) ++end;
    return end;
  }
  return end_of_space(text, at, true);
}

// `at`: no match.
size_t WordScanner::match_deepseek(std::string_view text, size_t at) const {
  constexpr CharacterClasses kSign = kPunctuation | kSymbol;
  constexpr CharacterClasses kWord = kLetter | kMark;
  size_t length = 0;
  const CharacterClasses kind = class_at(text, at, &length);
  const size_t next = at + length;
  if ((kind & kSign) != 0 && is_ascii(text[at]) && is_ascii_letter(byte_at(text, next))) {
    size_t end = next + 1;
    while (is_ascii_letter(byte_at(text, end))) ++end;
    return end;
  }
  if ((kind & kWord) != 0) return run(text, next, kWord);
  if ((kind & (kLineEnd | kSign)) == 0 && (class_at(text, next, &length) & kWord) != 0)
    return run(text, next + length, kWord);
  const size_t from = text[at] == ' ' ? next : at;
  if (const size_t end = run(text, from, kSign); end > from) return run(text, end, kLineEnd);
  return end_of_space(text, at, true);
}

size_t WordScanner::end_deepseek(std::string_view text, size_t at) const {
  const size_t end = match_deepseek(text, at);
  if (end > at) return end;
  size_t length = 0;
  do {
    class_at(text, at, &length);
    at += length;
  } while (at < text.size() && match_deepseek(text, at) == at);
  return at;
}

}  // namespace tessera
