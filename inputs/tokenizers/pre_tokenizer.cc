// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/pre_tokenizer.h"

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
  fail("{}: unknown behavior '{}'{}", json.where(), json.as_string(),
       did_you_mean(json.as_string(), names));
}

// Returns whether a span of text joins the span before it.
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

Matcher class_matcher(const std::string& name, CharacterClasses kinds) {
  return {name, [kinds, &classes = UnicodeClasses::get()](std::string_view text, const auto& take) {
            size_t length = 0;
            for (size_t at = 0; at < text.size(); at += length)
              if ((classes.at(text, at, &length) & kinds) != 0) take(at, at + length);
          }};
}

// Matches \w+|[^\w\s]+ with \w of Rust.
Matcher words_matcher() {
  return {"pattern '\\w+|[^\\w\\s]+'",
          [&classes = UnicodeClasses::get()](std::string_view text, const auto& take) {
            using namespace unicode_class;
            size_t begin = 0;
            CharacterClasses of_run = kSpace;
            size_t length = 0;
            for (size_t at = 0; at <= text.size(); at += length) {
              const CharacterClasses kind =
                  at < text.size() ? classes.at(text, at, &length) : kSpace;
              const CharacterClasses run = kind & (kWord | kSpace);
              if (run == of_run && at < text.size()) continue;
              if ((of_run & kSpace) == 0) take(begin, at);
              begin = at;
              of_run = run;
              if (at == text.size()) break;
            }
          }};
}

// Matches \s+$ in the time of one pass over a run of spaces.
Matcher trailing_space_matcher() {
  return {"pattern '\\s+$'",
          [&classes = UnicodeClasses::get()](std::string_view text, const auto& take) {
            using namespace unicode_class;
            size_t length = 0;
            for (size_t at = 0; at < text.size();) {
              const size_t begin = at;
              size_t line_end = begin;
              while (at < text.size() && (classes.at(text, at, &length) & kSpace) != 0) {
                if (text[at] == '\n') line_end = at;
                at += length;
              }
              const size_t end = at == text.size() ? at : line_end;
              if (end > begin) take(begin, end);
              if (at == begin) at += length;
            }
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

// Writes bytes in the byte-level alphabet.
void encode_bytes(const TextPiece& piece, const TakePiece& take) {
  take({byte_level_encode(piece.text), piece.is_beginning});
}

enum class Prepend { kNever, kFirst, kAlways };

// Applies SentencePiece's convention: spaces become a mark, and words begin with it.
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
    if (known && behaviour == Behaviour::kIsolated && !inverted) return make_scan_step(*known);
    // A scanner's pattern matches every character, so that nothing is left between its matches.
    // Keeping the matches alone is then the same as splitting at them.
    if (known && behaviour == Behaviour::kRemoved && inverted && known != WordPattern::kDeepSeek)
      return make_scan_step(*known);
    if (expression->as_string() == R"(\s+$)")
      return make_match_step(trailing_space_matcher(), behaviour, inverted);
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

// Makes a step from the JSON of any pre-tokenizer but Sequence and ByteLevel.
SplitStep make_split_step(const Json& json) {
  const std::string& type = json.at("type").as_string();
  if (type == "Split") return make_split(json);
  if (type == "Metaspace") return make_metaspace(json);
  if (type == "Digits")
    return make_match_step(
        class_matcher("digits", unicode_class::kStepDigit),
        flag_of(json, "individual_digits", false) ? Behaviour::kIsolated : Behaviour::kContiguous);
  if (type == "Punctuation") {
    const Json* behaviour = json.find("behavior");
    return make_match_step(class_matcher("punctuation", unicode_class::kStepPunctuation),
                           behaviour == nullptr ? Behaviour::kIsolated : behaviour_of(*behaviour));
  }
  if (type == "WhitespaceSplit")
    return make_match_step(class_matcher("space", unicode_class::kSpace), Behaviour::kRemoved);
  if (type == "Whitespace") return make_match_step(words_matcher(), Behaviour::kRemoved, true);
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
  if (is_byte_level_ && (type == "ByteLevel" || type == "Metaspace"))
    fail("{}: '{}' after ByteLevel is not supported", json.where(), type);
  if (steps_.size() >= kMostSteps)
    fail("{}: more than {} steps of pre-tokenization are not supported", json.where(), kMostSteps);
  if (type == "Sequence") {
    for (const Json& each : json.at("pretokenizers").as_array()) add(each);
  } else if (type == "ByteLevel") {
    if (flag_of(json, "add_prefix_space", true)) steps_.push_back({"prefix space", prefix_space});
    if (flag_of(json, "use_regex", true)) steps_.push_back(make_scan_step(WordPattern::kGpt2));
    is_byte_level_ = true;
  } else {
    // Later steps see the characters for bytes, as in Falcon's tokenizer.
    if (is_byte_level_ && !is_encoded_) steps_.push_back({"byte level", encode_bytes});
    is_encoded_ = is_byte_level_;
    steps_.push_back(make_split_step(json));
  }
}

void PreTokenizer::for_each_word(const TextPiece& piece,
                                 const std::function<void(std::string_view)>& take,
                                 size_t step) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return take(is_encoded_ ? *byte_level_decode(piece.text) : piece.text);
  steps_[step].split(piece, [&](const TextPiece& part) { for_each_word(part, take, step + 1); });
}

std::string PreTokenizer::description() const {
  std::string text;
  for (const auto& step : steps_) text += step.description + "; ";
  return text;
}

}  // namespace tessera
