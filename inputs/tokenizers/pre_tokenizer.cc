// SPDX-License-Identifier: Apache-2.0
// The scanners follow their patterns alternative by alternative; comments give the result where a
// pattern would backtrack. Tests compare with PCRE2 on the same patterns.
#include "inputs/tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "inputs/tokenizers/normalizer.h"
#include "inputs/tokenizers/pattern.h"
#include "inputs/tokenizers/unicode.h"

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

// The length of 's 't 're 've 'm 'll 'd at text[at], or 0. With `any_case`, case is ignored, and
// long s (U+017F) folds to s.
size_t contraction(std::string_view text, size_t at, bool any_case) {
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

//  ?[^\s\p{L}\p{N}]+ . 0: no match.
size_t WordScanner::end_of_others(std::string_view text, size_t at) const {
  const size_t from = text[at] == ' ' ? at + 1 : at;
  const size_t end = run_without(text, from, kNotOther);
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
    const uint8_t kind = classes_.at(text, end, &length);
    if ((kind & kSpace) == 0) break;
    last = end;
    end += length;
    if ((kind & kLineEnd) != 0) lines = end;
  }
  if (to_lines && lines > at) return lines;
  return end == text.size() || last == at ? end : last;
}

size_t WordScanner::end_gpt2(std::string_view text, size_t at) const {
  if (const size_t length = contraction(text, at, false)) return at + length;
  const size_t from = text[at] == ' ' ? at + 1 : at;
  size_t length = 0;
  const uint8_t kind = class_at(text, from, &length);
  if ((kind & kLetter) != 0) return run(text, from + length, kLetter);
  if ((kind & kNumber) != 0) return run(text, from + length, kNumber);
  if (const size_t end = end_of_others(text, at)) return end;
  return end_of_space(text, at, false);
}

size_t WordScanner::end_cl100k(std::string_view text, size_t at, int most_digits) const {
  if (const size_t length = contraction(text, at, true)) return at + length;
  size_t length = 0;
  const uint8_t kind = class_at(text, at, &length);
  if ((kind & kLetter) != 0) return run(text, at + length, kLetter);
  if ((kind & kNumber) != 0) return run_of_digits(text, at, most_digits);
  const size_t word = at + length;
  if ((kind & kLineEnd) == 0 && (class_at(text, word, &length) & kLetter) != 0)
    return run(text, word + length, kLetter);
  if (const size_t end = end_of_others(text, at)) return run(text, end, kLineEnd);
  return end_of_space(text, at, true);
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
  if (const size_t end = end_of_cased_word(text, at)) return end + contraction(text, end, true);
  size_t length = 0;
  if ((class_at(text, at, &length) & kNumber) != 0) return run_of_digits(text, at, 3);
  if (size_t end = end_of_others(text, at)) {
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) ++end;
    return end;
  }
  return end_of_space(text, at, true);
}

namespace {

constexpr size_t kMostSteps = 64;

enum class Behaviour { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

constexpr std::array<std::pair<Behaviour, std::string_view>, 5> kBehaviours = {{
    {Behaviour::kIsolated, "Isolated"},
    {Behaviour::kRemoved, "Removed"},
    {Behaviour::kMergedWithPrevious, "MergedWithPrevious"},
    {Behaviour::kMergedWithNext, "MergedWithNext"},
    {Behaviour::kContiguous, "Contiguous"},
}};

Behaviour behaviour_of(const Json& json) {
  std::vector<std::string> names;
  for (const auto& [behaviour, name] : kBehaviours) {
    if (json.as_string() == name) return behaviour;
    names.emplace_back(name);
  }
  fail("{}: unknown behavior '{}'{}", json.where(), json.as_string(),
       did_you_mean(json.as_string(), names));
}

// Whether a span of text joins the span before it.
bool joins(Behaviour behaviour, bool was_match, bool is_match) {
  switch (behaviour) {
    case Behaviour::kMergedWithPrevious:
      return is_match && !was_match;
    case Behaviour::kMergedWithNext:
      return was_match && !is_match;
    case Behaviour::kContiguous:
      return was_match == is_match;
    default:
      return false;
  }
}

Matcher class_matcher(const std::string& name, uint8_t kinds) {
  return {name, [kinds, &classes = UnicodeClasses::get()](std::string_view text, const auto& take) {
            size_t length = 0;
            for (size_t at = 0; at < text.size(); at += length)
              if ((classes.at(text, at, &length) & kinds) != 0) take(at, at + length);
          }};
}

SplitStep make_match_step(const Matcher& matcher, Behaviour behaviour, bool inverted = false) {
  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };
  const auto split = [=](const TextPiece& piece, const TakePiece& take) {
    std::vector<Span> spans;
    size_t last = 0;
    bool was_match = false;
    const auto add = [&](size_t begin, size_t end, bool is_match) {
      last = end;
      if (behaviour == Behaviour::kRemoved && is_match) return;
      if (!spans.empty() && joins(behaviour, was_match, is_match))
        spans.back().end = end;
      else
        spans.push_back({begin, end});
      was_match = is_match;
    };
    matcher.find(piece.text, [&](size_t begin, size_t end) {
      if (begin > last) add(last, begin, inverted);
      add(begin, end, !inverted);
    });
    if (last < piece.text.size()) add(last, piece.text.size(), inverted);
    for (const auto& [begin, end] : spans)
      if (begin < end)
        take({piece.text.substr(begin, end - begin), piece.is_beginning && begin == 0});
  };
  return {
      fmt::format("split at {} {} {}", matcher.description, static_cast<int>(behaviour), inverted),
      split};
}

// Prepends a space to a piece without one.
void prefix_space(const TextPiece& piece, const TakePiece& take) {
  if (piece.text.starts_with(' ')) return take(piece);
  std::string prefixed(1, ' ');
  prefixed += piece.text;
  take({prefixed, piece.is_beginning});
}

enum class Prepend { kNever, kFirst, kAlways };

// SentencePiece's convention: spaces become a mark, and words begin with it.
SplitStep make_metaspace_step(const Json& replacement, Prepend prepend, bool splits) {
  const std::string& mark = replacement.as_string();
  const SplitStep words = make_match_step(literal_matcher(replacement), Behaviour::kMergedWithNext);
  const auto split = [=](const TextPiece& piece, const TakePiece& take) {
    std::string written;
    for (const char c : piece.text) {
      if (c == ' ')
        written += mark;
      else
        written += c;
    }
    const bool prepends =
        prepend == Prepend::kAlways || (prepend == Prepend::kFirst && piece.is_beginning);
    if (prepends && !written.starts_with(mark)) written = mark + written;
    const TextPiece changed{written, piece.is_beginning};
    splits ? words.split(changed, take) : take(changed);
  };
  return {fmt::format("metaspace '{}' {} {}", mark, static_cast<int>(prepend), splits), split};
}

SplitStep make_split(const Json& json) {
  const Behaviour behaviour = behaviour_of(json.at("behavior"));
  const bool inverted = flag_of(json, "invert", false);
  const Json& pattern = json.at("pattern");
  if (const Json* expression = pattern.find("Regex")) {
    const auto known = known_pattern(expression->as_string());
    // A known pattern covers the whole text, so both forms keep every word.
    if (known && behaviour == Behaviour::kIsolated && !inverted) return make_scan_step(*known);
    if (known && behaviour == Behaviour::kRemoved && inverted) return make_scan_step(*known);
  }
  return make_match_step(make_matcher(pattern), behaviour, inverted);
}

SplitStep make_metaspace(const Json& json) {
  const std::string& mark = json.at("replacement").as_string();
  if (mark.empty() || character_at(mark, 0).length != static_cast<int32_t>(mark.size()))
    fail("{} is '{}', expected one character", json.at("replacement").where(), mark);
  Prepend prepend = flag_of(json, "add_prefix_space", true) ? Prepend::kAlways : Prepend::kNever;
  if (const Json* scheme = json.find("prepend_scheme")) {
    const std::string& name = scheme->as_string();
    if (name != "first" && name != "always" && name != "never")
      fail("{} is '{}', expected first, always or never", scheme->where(), name);
    prepend = name == "first"    ? Prepend::kFirst
              : name == "always" ? Prepend::kAlways
                                 : Prepend::kNever;
  }
  return make_metaspace_step(json.at("replacement"), prepend, flag_of(json, "split", true));
}

// A step from the JSON of any pre-tokenizer but Sequence and ByteLevel.
SplitStep make_split_step(const Json& json) {
  const std::string& type = json.at("type").as_string();
  if (type == "Split") return make_split(json);
  if (type == "Metaspace") return make_metaspace(json);
  if (type == "Digits")
    return make_match_step(
        class_matcher("digits", unicode_class::kNumber),
        flag_of(json, "individual_digits", false) ? Behaviour::kIsolated : Behaviour::kContiguous);
  if (type == "Punctuation") {
    const Json* behaviour = json.find("behavior");
    return make_match_step(class_matcher("punctuation", unicode_class::kPunctuation),
                           behaviour == nullptr ? Behaviour::kIsolated : behaviour_of(*behaviour));
  }
  if (type == "WhitespaceSplit")
    return make_match_step(class_matcher("space", unicode_class::kSpace), Behaviour::kRemoved);
  if (type == "Whitespace")
    return make_match_step(pattern_matcher(R"(\w+|[^\w\s]+)", json.where()), Behaviour::kRemoved,
                           true);
  if (type == "CharDelimiterSplit")
    return make_match_step(literal_matcher(json.at("delimiter")), Behaviour::kRemoved);
  fail(
      "{}: a pre-tokenizer of type '{}' is not supported; supported are: ByteLevel, Split, Digits, "
      "Metaspace, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, Sequence",
      json.where(), type);
}

}  // namespace

SplitStep make_scan_step(WordPattern pattern) {
  const auto scanner = std::make_shared<const WordScanner>(pattern);
  const auto split = [scanner](const TextPiece& piece, const TakePiece& take) {
    scanner->for_each_word(piece.text, [&](std::string_view word) {
      take({word, piece.is_beginning && word.data() == piece.text.data()});
    });
  };
  return {fmt::format("words {}", static_cast<int>(pattern)), split, scanner};
}

PreTokenizer::PreTokenizer(const Json& json) {
  if (!json.is_null()) add(json);
}

void PreTokenizer::add(const Json& json) {
  const std::string& type = json.at("type").as_string();
  if (is_byte_level_)
    fail("{}: '{}' comes after ByteLevel, which must be the last step", json.where(), type);
  if (steps_.size() >= kMostSteps)
    fail("{}: more than {} steps of pre-tokenization are not supported", json.where(), kMostSteps);
  if (type == "Sequence") {
    for (const Json& each : json.at("pretokenizers").as_array()) add(each);
  } else if (type == "ByteLevel") {
    if (flag_of(json, "add_prefix_space", true)) steps_.push_back({"prefix space", prefix_space});
    if (flag_of(json, "use_regex", true)) steps_.push_back(make_scan_step(WordPattern::kGpt2));
    is_byte_level_ = true;
  } else {
    steps_.push_back(make_split_step(json));
  }
}

void PreTokenizer::for_each_word(const TextPiece& piece,
                                 const std::function<void(std::string_view)>& take) const {
  run(0, piece, take);
}

void PreTokenizer::run(size_t step, const TextPiece& piece,
                       const std::function<void(std::string_view)>& take) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return take(piece.text);
  steps_[step].split(piece, [&](const TextPiece& part) { run(step + 1, part, take); });
}

std::string PreTokenizer::description() const {
  std::string text;
  for (const auto& step : steps_) text += step.description + "; ";
  return text;
}

}  // namespace tessera
