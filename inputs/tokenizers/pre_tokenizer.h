// SPDX-License-Identifier: Apache-2.0
// How a tokenizer.json splits text into words before byte-pair encoding: steps, each of which
// splits what the one before left. Not the merging within words.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "inputs/tokenizers/word_scanner.h"

namespace tessera {

// A piece of text on its way through the steps.
struct TextPiece {
  std::string_view text;
  bool is_beginning = false;  // Of the whole text.
};
using TakePiece = std::function<void(const TextPiece&)>;

class SplitStep {
 public:
  virtual ~SplitStep() = default;
  // Gives each piece of a piece, in order; what it gives lives as long as the call.
  virtual void split(const TextPiece& piece, const TakePiece& take) const = 0;
  // Equal for equal effect; for fingerprints.
  virtual std::string description() const = 0;
  // If all that it does is a known pattern's.
  virtual const WordScanner* scanner() const { return nullptr; }
};

class PreTokenizer {
 public:
  // Of the member "pre_tokenizer". Error that names what is not supported.
  explicit PreTokenizer(const Json& json);
  PreTokenizer(std::vector<std::unique_ptr<SplitStep>> steps, bool is_byte_level)
      : steps_(std::move(steps)), is_byte_level_(is_byte_level) {}

  // Calls with each word of a text, in order.
  void for_each_word(const TextPiece& piece,
                     const std::function<void(std::string_view)>& take) const;
  // If a known pattern is all there is: the fast way.
  const WordScanner* only_scanner() const {
    return steps_.size() == 1 ? steps_[0]->scanner() : nullptr;
  }
  // Whether words' bytes are written in GPT-2's alphabet (byte_alphabet.h) at the end.
  bool is_byte_level() const { return is_byte_level_; }
  std::string description() const;

 private:
  void add(const Json& json);
  void run(size_t step, const TextPiece& piece,
           const std::function<void(std::string_view)>& take) const;

  std::vector<std::unique_ptr<SplitStep>> steps_;
  bool is_byte_level_ = false;
};

// The step of a known pattern.
std::unique_ptr<SplitStep> make_scan_step(WordPattern pattern);
// A step by the JSON of any pre-tokenizer but Sequence and ByteLevel.
std::unique_ptr<SplitStep> make_split_step(const Json& json);
// A space before a piece that begins with none.
std::unique_ptr<SplitStep> make_prefix_space_step();

}  // namespace tessera
