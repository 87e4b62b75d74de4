// SPDX-License-Identifier: Apache-2.0
// Splits text into words before byte-pair encoding: by scanners of well-known patterns, and by the
// steps of the pre-tokenizer of a tokenizer.json.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {

// Hand-written scanners for the word patterns of well-known tokenizers: linear time, about 100
// times faster than a regular expression. Other patterns use pattern.h.

enum class WordPattern {
  kGpt2,    // GPT-2, RoBERTa, GPT-NeoX, OPT
  kCl100k,  // cl100k_base; Llama 3
  kQwen2,   // As cl100k, with single digits.
  kO200k,   // o200k_base, gpt-oss
};

// The known pattern with exactly this source; nullopt if no known pattern matches.
std::optional<WordPattern> known_pattern(std::string_view regular_expression);

// Finds the ends of words. Stateless: scanning may start at any word.
class WordScanner {
 public:
  explicit WordScanner(WordPattern pattern) : pattern_(pattern), classes_(UnicodeClasses::get()) {}

  // Visits the words of the text in order; they cover it.
  template <typename Take>
  void for_each_word(std::string_view text, const Take& take) const {
    size_t at = 0;
    const auto loop = [&](auto end_of) {
      while (at < text.size()) {
        const size_t end = end_of(at);
        take(text.substr(at, end - at));
        at = end;
      }
    };
    switch (pattern_) {
      case WordPattern::kGpt2:
        return loop([&](size_t from) { return end_gpt2(text, from); });
      case WordPattern::kCl100k:
        return loop([&](size_t from) { return end_cl100k(text, from, 3); });
      case WordPattern::kQwen2:
        return loop([&](size_t from) { return end_cl100k(text, from, 1); });
      case WordPattern::kO200k:
        return loop([&](size_t from) { return end_o200k(text, from); });
    }
  }

 private:
  size_t end_gpt2(std::string_view text, size_t at) const;
  size_t end_cl100k(std::string_view text, size_t at, int most_digits) const;
  size_t end_o200k(std::string_view text, size_t at) const;

  size_t end_of_cased_word(std::string_view text, size_t at) const;
  size_t end_of_lower_part(std::string_view text, size_t at) const;
  size_t end_of_upper_part(std::string_view text, size_t at) const;

  // 0 at the end of the text.
  uint8_t class_at(std::string_view text, size_t at, size_t* length) const {
    *length = 0;
    return at < text.size() ? classes_.at(text, at, length) : 0;
  }
  // The end of the run of characters with one of the classes.
  size_t run(std::string_view text, size_t at, uint8_t kinds) const {
    size_t length = 0;
    while (at < text.size() && (classes_.at(text, at, &length) & kinds) != 0) at += length;
    return at;
  }
  // The end of the run of characters with none of them.
  size_t run_without(std::string_view text, size_t at, uint8_t kinds) const {
    size_t length = 0;
    while (at < text.size() && (classes_.at(text, at, &length) & kinds) == 0) at += length;
    return at;
  }
  size_t run_of_digits(std::string_view text, size_t at, int most) const;
  size_t end_of_others(std::string_view text, size_t at) const;
  size_t end_of_space(std::string_view text, size_t at, bool to_lines) const;

  WordPattern pattern_;
  const UnicodeClasses& classes_;
};

// A piece of text between steps.
struct TextPiece {
  std::string_view text;
  bool is_beginning = false;  // Of the whole text.
};
using TakePiece = std::function<void(const TextPiece&)>;

struct SplitStep {
  std::string description;  // Equal for equal effect; for fingerprints.
  // Passes the parts of a piece to `take`, in order; they are valid during the call.
  std::function<void(const TextPiece& piece, const TakePiece& take)> split;
  std::shared_ptr<const WordScanner> scanner = nullptr;  // Set if it is exactly a known pattern.
};

class PreTokenizer {
 public:
  // From the member "pre_tokenizer". Error that names an unsupported feature.
  explicit PreTokenizer(const Json& json);
  PreTokenizer(std::vector<SplitStep> steps, bool is_byte_level)
      : steps_(std::move(steps)), is_byte_level_(is_byte_level) {}

  // Visits the words of a text in order.
  void for_each_word(const TextPiece& piece,
                     const std::function<void(std::string_view)>& take) const;
  // The fast path: set if the only step is a known pattern.
  const WordScanner* only_scanner() const {
    return steps_.size() == 1 ? steps_[0].scanner.get() : nullptr;
  }
  // Whether words end in GPT-2's byte-level alphabet (unicode.h).
  bool is_byte_level() const { return is_byte_level_; }
  std::string description() const;

 private:
  void add(const Json& json);
  void run(size_t step, const TextPiece& piece,
           const std::function<void(std::string_view)>& take) const;

  std::vector<SplitStep> steps_;
  bool is_byte_level_ = false;
};

// The step of a known pattern.
SplitStep make_scan_step(WordPattern pattern);

}  // namespace tessera
