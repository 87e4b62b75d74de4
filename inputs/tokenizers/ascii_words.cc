// SPDX-License-Identifier: Apache-2.0
// Finds the words of ASCII text by windows of 64 bytes: each class of bytes is a mask of 64 bits,
// and the rules of a pattern are bit arithmetic on these masks. A window begins at a word. Its
// words are known up to its last character that is not white space; the next window begins at the
// last known beginning of a word.
#include <algorithm>
#include <bit>
#include <cstring>

#include "inputs/tokenizers/word_scanner.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "inputs/tokenizers/ascii_words.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kWindow = 64;

// Bit i is set if byte i of the window is of the class.
struct ByteClasses {
  uint64_t letters = 0;
  uint64_t capitals = 0;
  uint64_t digits = 0;
  uint64_t spaces = 0;
  uint64_t white = 0;  // Spaces and line ends too.
  uint64_t line_ends = 0;
  uint64_t apostrophes = 0;
  uint64_t slashes = 0;
  uint64_t beyond = 0;  // Not ASCII.
};

HWY_INLINE ByteClasses classify(const uint8_t* bytes) {
  const hn::CappedTag<uint8_t, kWindow> d;
  ByteClasses classes;
  for (size_t i = 0; i < kWindow; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, bytes + i);
    const auto add = [&](auto is_member, uint64_t* to) {
      uint64_t bits = 0;
      hn::StoreMaskBits(d, is_member, reinterpret_cast<uint8_t*>(&bits));
      *to |= bits << i;
    };
    const auto equals = [&](char c) { return hn::Eq(v, hn::Set(d, static_cast<uint8_t>(c))); };
    const auto lies_between = [&](auto value, uint8_t first, uint8_t last) {
      const auto from_first = hn::Sub(value, hn::Set(d, first));
      const auto most = hn::Set(d, static_cast<uint8_t>(last - first));
      return hn::Eq(hn::Min(from_first, most), from_first);
    };
    add(lies_between(hn::Or(v, hn::Set(d, uint8_t{0x20})), 'a', 'z'), &classes.letters);
    add(lies_between(v, 'A', 'Z'), &classes.capitals);
    add(lies_between(v, '0', '9'), &classes.digits);
    add(lies_between(v, '\t', '\r'), &classes.white);
    add(lies_between(v, 0x80, 0xff), &classes.beyond);
    add(equals(' '), &classes.spaces);
    add(equals('\n'), &classes.line_ends);
    add(equals('\r'), &classes.line_ends);
    add(equals('\''), &classes.apostrophes);
    add(equals('/'), &classes.slashes);
  }
  classes.white |= classes.spaces;
  return classes;
}

HWY_INLINE uint64_t firsts_of_runs(uint64_t bits) { return bits & ~(bits << 1); }
HWY_INLINE uint64_t up_to(int bit) { return ~uint64_t{0} >> (63 - bit); }
HWY_INLINE int highest(uint64_t bits) { return 63 - std::countl_zero(bits); }

// Every third digit of a run, from its first.
HWY_INLINE uint64_t thirds(uint64_t digits) {
  uint64_t firsts = firsts_of_runs(digits);
  uint64_t goes_on = digits & digits >> 1 & digits >> 2 & digits >> 3;
  for (int step = 3; step < 64; step *= 2) {
    firsts |= (firsts & goes_on) << step;
    goes_on &= goes_on >> step;
  }
  return firsts;
}

// Beginnings of words in white space, for patterns with lines.
HWY_INLINE uint64_t starts_in_white(uint64_t white, uint64_t line_ends, uint64_t all_white) {
  const uint64_t blanks = white & ~line_ends;
  uint64_t starts = firsts_of_runs(white) | (blanks & ~(all_white >> 1));
  // Blanks after a line end begin a word, unless another line end follows them.
  uint64_t after_line = blanks & line_ends << 1;
  for (uint64_t lines = (blanks + after_line) & ~blanks & line_ends; lines != 0;
       lines &= lines - 1) {
    const uint64_t before = after_line & ((lines & (~lines + 1)) - 1);
    if (before != 0) after_line &= ~(uint64_t{1} << highest(before));
  }
  return starts | after_line;
}

// `signs`: beginnings of words with a sign. Contractions are rare enough for a loop.
HWY_INLINE uint64_t with_contractions(const AsciiRules& rules, const ByteClasses& in,
                                      uint64_t signs, uint64_t starts, std::string_view rest) {
  const bool is_suffix = rules.contraction == AsciiRules::Contraction::kSuffix;
  uint64_t ends = 0;
  for (uint64_t left = in.apostrophes & (is_suffix ? in.letters << 1 : signs); left != 0;
       left &= left - 1) {
    const int at = std::countr_zero(left);
    const size_t length = contraction_length(
        rest, static_cast<size_t>(at), rules.contraction != AsciiRules::Contraction::kLowerWord);
    if (length == 0 || (is_suffix && (ends >> at & 1) != 0)) continue;
    const int end = at + static_cast<int>(length);
    starts &= ~(up_to(std::min(end, 63)) & ~up_to(is_suffix ? at - 1 : at));
    if (end < 64) ends |= uint64_t{1} << end;
    starts |= ends;
  }
  return starts;
}

// Returns the beginnings of words in a window at the beginning of `rest`; the first bit is one.
HWY_INLINE uint64_t word_starts(const AsciiRules& rules, const ByteClasses& in,
                                std::string_view rest) {
  const uint64_t signs_all = ~(in.letters | in.digits | in.white);
  const uint64_t signs = firsts_of_runs(signs_all) & ~(in.spaces << 1);
  const uint64_t letters = firsts_of_runs(in.letters);
  uint64_t starts = signs;
  if (rules.has_lines) {
    // Line ends after a sign: the carry of an addition runs through them.
    const uint64_t tails = in.line_ends & ~(in.line_ends + (in.line_ends & signs_all << 1));
    const uint64_t white = in.white & ~tails;
    starts |= letters & ~((signs | (in.white & ~in.line_ends)) << 1);
    starts |= starts_in_white(white, in.line_ends & white, in.white);
  } else {
    starts |= letters & ~(in.spaces << 1);
    starts |= firsts_of_runs(in.white) | (in.white & ~(in.white >> 1));
  }
  if (rules.most_digits == 0)
    starts |= firsts_of_runs(in.digits) & ~(in.spaces << 1);
  else
    starts |= rules.most_digits == 1 ? in.digits : thirds(in.digits);
  if (rules.is_cased) starts |= in.capitals & (in.letters & ~in.capitals) << 1;
  if (rules.contraction != AsciiRules::Contraction::kNone)
    starts = with_contractions(rules, in, signs, starts, rest);
  return starts;
}

size_t FindWords(const AsciiRules& rules, std::string_view text, size_t at, size_t* ends) {
  const std::string_view rest = text.substr(at);
  HWY_ALIGN uint8_t padded[kWindow];
  const auto* bytes = reinterpret_cast<const uint8_t*>(rest.data());
  if (rest.size() < kWindow) {
    std::fill_n(padded, kWindow, uint8_t{0xff});
    std::memcpy(padded, rest.data(), rest.size());
    bytes = padded;
  }
  const ByteClasses in = classify(bytes);
  uint64_t unknown = in.beyond;
  if (rules.is_cased) unknown |= in.slashes & in.line_ends << 1;
  const uint64_t known = ~unknown & (unknown - 1);  // Below the lowest unknown byte.
  const uint64_t not_white = known & ~in.white;
  if (not_white == 0) return 0;
  // Without the first bit, the beginnings are the ends of the words before.
  uint64_t starts = word_starts(rules, in, rest) & up_to(highest(not_white)) & ~uint64_t{1};
  const auto count = static_cast<size_t>(std::popcount(starts));
  // Four at a time, because the end of a loop for each cannot be predicted.
  for (size_t i = 0; i < count; i += 4)
    for (size_t j = i; j < i + 4; ++j, starts &= starts - 1)
      ends[j] = at + static_cast<size_t>(std::countr_zero(starts));
  return count;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(FindWords);

size_t find_ascii_words(const AsciiRules& rules, std::string_view text, size_t at, size_t* ends) {
  return HWY_DYNAMIC_DISPATCH(FindWords)(rules, text, at, ends);
}

}  // namespace tessera
#endif
