// SPDX-License-Identifier: Apache-2.0
// Each function follows its pattern alternative by alternative; comments give the result where the
// pattern would backtrack. Tests compare with PCRE2 on the same patterns.
#include "inputs/tokenizers/word_scanner.h"

#include <array>
#include <utility>

namespace tessera {
namespace {

using unicode_class::kLetter;
using unicode_class::kLineEnd;
using unicode_class::kLower;
using unicode_class::kNumber;
using unicode_class::kSpace;
using unicode_class::kUpper;

constexpr uint8_t kNotOther = kLetter | kNumber | kSpace;

// The patterns as written in tokenizer.json files and tiktoken, including equivalent variants.
constexpr std::array<std::pair<std::string_view, WordPattern>, 7> kKnown = {{
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
}};

char byte_at(std::string_view text, size_t at) { return at < text.size() ? text[at] : '\0'; }

char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The length of 's 't 're 've 'm 'll 'd at text[at], or 0.
size_t contraction(std::string_view text, size_t at) {
  if (byte_at(text, at) != '\'') return 0;
  const char first = byte_at(text, at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = byte_at(text, at + 2);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  return first == 'l' && second == 'l' ? 3 : 0;
}

// The same, ignoring case; long s (U+017F) folds to s.
size_t contraction_any_case(std::string_view text, size_t at) {
  if (byte_at(text, at) != '\'') return 0;
  const char first = lower_ascii(byte_at(text, at + 1));
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = lower_ascii(byte_at(text, at + 2));
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  return text.substr(at + 1, 2) == "\xc5\xbf" ? 3 : 0;
}

}  // namespace

std::optional<WordPattern> known_pattern(std::string_view regular_expression) {
  for (const auto& [text, pattern] : kKnown)
    if (text == regular_expression) return pattern;
  return std::nullopt;
}

size_t WordScanner::run_of_digits(std::string_view text, size_t at, int most) const {
  size_t length = 0;
  for (int i = 0; i < most && (class_at(text, at, &length) & kNumber) != 0; ++i) at += length;
  return at;
}

// \s+(?!\S)|\s+ : the run without its last character, if text follows.
size_t WordScanner::end_of_space(std::string_view text, size_t at) const {
  size_t length = 0;
  size_t last = at;
  size_t end = at;
  while (end < text.size() && (classes_.at(text, end, &length) & kSpace) != 0) {
    last = end;
    end += length;
  }
  return end == text.size() || last == at ? end : last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last line end of the run, if any.
size_t WordScanner::end_of_space_and_lines(std::string_view text, size_t at) const {
  size_t length = 0;
  size_t last = at;
  size_t lines = at;
  size_t end = at;
  while (end < text.size()) {
    const uint8_t kind = classes_.at(text, end, &length);
    if ((kind & kSpace) == 0) break;
    last = end;
    end += length;
    if ((kind & kLineEnd) != 0) lines = end;
  }
  if (lines > at) return lines;
  return end == text.size() || last == at ? end : last;
}

size_t WordScanner::end_gpt2(std::string_view text, size_t at) const {
  if (const size_t length = contraction(text, at)) return at + length;
  const size_t from = text[at] == ' ' ? at + 1 : at;
  size_t length = 0;
  const uint8_t kind = class_at(text, from, &length);
  if ((kind & kLetter) != 0) return run(text, from + length, kLetter);
  if ((kind & kNumber) != 0) return run(text, from + length, kNumber);
  if (length > 0 && (kind & kSpace) == 0) return run_without(text, from + length, kNotOther);
  return end_of_space(text, at);
}

size_t WordScanner::end_cl100k(std::string_view text, size_t at, int most_digits) const {
  if (const size_t length = contraction_any_case(text, at)) return at + length;
  size_t length = 0;
  const uint8_t kind = class_at(text, at, &length);
  if ((kind & kLetter) != 0) return run(text, at + length, kLetter);
  if ((kind & kNumber) != 0) return run_of_digits(text, at, most_digits);
  size_t next_length = 0;
  const size_t next = at + length;
  const uint8_t next_kind = class_at(text, next, &next_length);
  if ((kind & kLineEnd) == 0 && (next_kind & kLetter) != 0)
    return run(text, next + next_length, kLetter);
  const bool is_other = (kind & kSpace) == 0;
  if (is_other || (text[at] == ' ' && next_length > 0 && (next_kind & kNotOther) == 0))
    return run(text, run_without(text, next, kNotOther), kLineEnd);
  return end_of_space_and_lines(text, at);
}

// [upper]*[lower]+ : backtracks to the last character in both classes. 0: no match.
size_t WordScanner::end_of_lower_part(std::string_view text, size_t at) const {
  size_t length = 0;
  size_t last_of_both = 0;
  size_t end = at;
  while (end < text.size()) {
    const uint8_t kind = classes_.at(text, end, &length);
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
  const uint8_t kind = class_at(text, at, &length);
  const bool may_lead = (kind & (kLetter | kNumber | kLineEnd)) == 0;
  const size_t after = at + length;
  size_t end = may_lead ? end_of_lower_part(text, after) : 0;
  if (end == 0) end = end_of_lower_part(text, at);
  if (end == 0 && may_lead) end = end_of_upper_part(text, after);
  if (end == 0) end = end_of_upper_part(text, at);
  return end;
}

size_t WordScanner::end_o200k(std::string_view text, size_t at) const {
  if (const size_t end = end_of_cased_word(text, at)) return end + contraction_any_case(text, end);
  size_t length = 0;
  const uint8_t kind = class_at(text, at, &length);
  if ((kind & kNumber) != 0) return run_of_digits(text, at, 3);
  size_t next_length = 0;
  const uint8_t next_kind = class_at(text, at + length, &next_length);
  const bool is_other = (kind & kSpace) == 0;
  if (is_other || (text[at] == ' ' && next_length > 0 && (next_kind & kNotOther) == 0)) {
    size_t end = run_without(text, at + length, kNotOther);
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) ++end;
    return end;
  }
  return end_of_space_and_lines(text, at);
}

}  // namespace tessera
