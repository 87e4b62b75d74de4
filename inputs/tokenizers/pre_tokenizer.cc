// SPDX-License-Identifier: Apache-2.0
// Pre-tokenization steps by type, and the five ways to treat a match.
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
  fail("{}: no behavior '{}'{}", json.where(), json.as_string(),
       did_you_mean(json.as_string(), names));
}

struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

using TakeMatch = std::function<void(size_t begin, size_t end)>;

// Finds the matches in a text, in order.
struct Matcher {
  std::string description;
  std::function<void(std::string_view text, const TakeMatch& take)> find;
};

Matcher literal_matcher(const std::string& literal) {
  return {fmt::format("text '{}'", literal), [literal](std::string_view text, const auto& take) {
            for (size_t at = text.find(literal); at != std::string_view::npos;
                 at = text.find(literal, at + literal.size()))
              take(at, at + literal.size());
          }};
}

Matcher pattern_matcher(const std::string& expression, const std::string& where) {
  const auto pattern = std::make_shared<const Pattern>(expression, where);
  return {
      fmt::format("pattern '{}'", expression),
      [pattern](std::string_view text, const auto& take) { pattern->for_each_match(text, take); }};
}

Matcher class_matcher(const std::string& name, uint8_t kinds) {
  return {name, [kinds, &classes = UnicodeClasses::get()](std::string_view text, const auto& take) {
            size_t length = 0;
            for (size_t at = 0; at < text.size(); at += length)
              if ((classes.at(text, at, &length) & kinds) != 0) take(at, at + length);
          }};
}

// Joins each match with the span before it, unless that is also a match.
std::vector<Span> joined_with_previous(const std::vector<Span>& spans) {
  std::vector<Span> joined;
  bool after_match = false;
  for (const Span& span : spans) {
    if (span.is_match && !after_match && !joined.empty())
      joined.back().end = span.end;
    else
      joined.push_back(span);
    after_match = span.is_match;
  }
  return joined;
}

std::vector<Span> joined_with_next(std::vector<Span> spans) {
  std::vector<Span> joined;
  bool after_match = false;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->is_match && !after_match && !joined.empty())
      joined.back().begin = span->begin;
    else
      joined.push_back(*span);
    after_match = span->is_match;
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

std::vector<Span> joined_equals(const std::vector<Span>& spans) {
  std::vector<Span> joined;
  for (const Span& span : spans) {
    if (!joined.empty() && joined.back().is_match == span.is_match)
      joined.back().end = span.end;
    else
      joined.push_back(span);
  }
  return joined;
}

SplitStep make_match_step(const Matcher& matcher, Behaviour behaviour, bool inverted = false) {
  const auto split = [=](const TextPiece& piece, const TakePiece& take) {
    std::vector<Span> spans;
    size_t last = 0;
    matcher.find(piece.text, [&](size_t begin, size_t end) {
      if (begin > last) spans.push_back({last, begin, inverted});
      spans.push_back({begin, end, !inverted});
      last = end;
    });
    if (last < piece.text.size()) spans.push_back({last, piece.text.size(), inverted});
    if (behaviour == Behaviour::kMergedWithPrevious) spans = joined_with_previous(spans);
    if (behaviour == Behaviour::kMergedWithNext) spans = joined_with_next(std::move(spans));
    if (behaviour == Behaviour::kContiguous) spans = joined_equals(spans);
    for (const Span& span : spans) {
      if (behaviour == Behaviour::kRemoved && span.is_match) continue;
      if (span.begin == span.end) continue;
      take({piece.text.substr(span.begin, span.end - span.begin),
            piece.is_beginning && span.begin == 0});
    }
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
SplitStep make_metaspace_step(const std::string& mark, Prepend prepend, bool splits) {
  const SplitStep words = make_match_step(literal_matcher(mark), Behaviour::kMergedWithNext);
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

Matcher make_literal(const Json& json) {
  if (json.as_string().empty()) fail("{} is empty", json.where());
  return literal_matcher(json.as_string());
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
    return make_match_step(pattern_matcher(expression->as_string(), expression->where()), behaviour,
                           inverted);
  }
  return make_match_step(make_literal(pattern.at("String")), behaviour, inverted);
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
  return make_metaspace_step(mark, prepend, flag_of(json, "split", true));
}

SplitStep make_class_split(const std::string& name, uint8_t kinds, Behaviour behaviour) {
  return make_match_step(class_matcher(name, kinds), behaviour, false);
}

// A step from the JSON of any pre-tokenizer but Sequence and ByteLevel.
SplitStep make_split_step(const Json& json) {
  const std::string& type = json.at("type").as_string();
  if (type == "Split") return make_split(json);
  if (type == "Metaspace") return make_metaspace(json);
  if (type == "Digits")
    return make_class_split(
        "digits", unicode_class::kNumber,
        flag_of(json, "individual_digits", false) ? Behaviour::kIsolated : Behaviour::kContiguous);
  if (type == "Punctuation") {
    const Json* behaviour = json.find("behavior");
    return make_class_split("punctuation", unicode_class::kPunctuation,
                            behaviour == nullptr ? Behaviour::kIsolated : behaviour_of(*behaviour));
  }
  if (type == "WhitespaceSplit")
    return make_class_split("space", unicode_class::kSpace, Behaviour::kRemoved);
  if (type == "Whitespace")
    return make_match_step(pattern_matcher(R"(\w+|[^\w\s]+)", json.where()), Behaviour::kRemoved,
                           true);
  if (type == "CharDelimiterSplit")
    return make_match_step(make_literal(json.at("delimiter")), Behaviour::kRemoved, false);
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
