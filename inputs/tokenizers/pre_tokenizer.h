// SPDX-License-Identifier: Apache-2.0
// Splits text into words before byte-pair encoding, by the steps of the pre-tokenizer of a
// tokenizer.json.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "inputs/tokenizers/word_scanner.h"

namespace tessera {

// A piece of text between steps.
struct TextPiece {
  std::string_view text;
  bool is_beginning = false;  // At the beginning of the whole text.
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
  // Parses the member "pre_tokenizer". Error that names an unsupported feature.
  explicit PreTokenizer(const Json& json);
  PreTokenizer(std::vector<SplitStep> steps, bool is_byte_level)
      : steps_(std::move(steps)), is_byte_level_(is_byte_level) {}

  // Visits the words of a text in order. `step`: the first step to take.
  void for_each_word(const TextPiece& piece, const std::function<void(std::string_view)>& take,
                     size_t step = 0) const;
  // The fast path: set if the only step is a known pattern.
  const WordScanner* only_scanner() const {
    return steps_.size() == 1 ? steps_[0].scanner.get() : nullptr;
  }
  // Returns whether words end in GPT-2's byte-level alphabet (unicode.h).
  bool is_byte_level() const { return is_byte_level_; }
  std::string description() const;

 private:
  void add(const Json& json);

  std::vector<SplitStep> steps_;
  bool is_byte_level_ = false;
  bool is_encoded_ = false;  // The last steps see the byte-level alphabet.
};

// Makes the step of a known pattern.
SplitStep make_scan_step(WordPattern pattern);

}  // namespace tessera
