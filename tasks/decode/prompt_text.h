// SPDX-License-Identifier: Apache-2.0
// Prompts to ids and ids to what is shown, by a tokenizer, or as numbers where the data have none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/tokenizers/tokenizer.h"
#include "tasks/decode/sampler.h"

namespace tessera {

class PromptText {
 public:
  // `tokenizer` may be null; it outlives this. Ids of data without one are below `vocab_size`.
  PromptText(const Tokenizer* tokenizer, int64_t vocab_size);

  // Names of special tokens stand for them. Error for an empty prompt, and for one of numbers that
  // are no ids.
  std::vector<int32_t> prompt_ids(std::string_view prompt) const;
  // What an unprompted text begins with: as after the end of a document.
  std::vector<int32_t> beginning() const;
  std::string text(const std::vector<int32_t>& ids) const;
  // What `ids` add to the text of `prompt`.
  std::string continuation(const std::vector<int32_t>& prompt,
                           const std::vector<int32_t>& ids) const;
  // Of a token's name, or of a number that is an id. Error with the nearest name.
  int32_t id_of(const std::string& token) const;
  std::optional<int32_t> end_id() const;
  // Of the model's ids, of which there may be more. Error if there are fewer.
  DrawableIds drawable_ids(int64_t model_vocab_size) const;

 private:
  int32_t checked_id(std::string_view number) const;

  const Tokenizer* tokenizer_;
  int64_t vocab_size_;
};

// Ids as they stand on a command line, with spaces or commas between. Error for what is no id of
// any vocabulary, and if there are none.
std::vector<int32_t> parse_token_ids(std::string_view text);
// The same ids with spaces between.
std::string token_ids_text(const std::vector<int32_t>& ids);

}  // namespace tessera
