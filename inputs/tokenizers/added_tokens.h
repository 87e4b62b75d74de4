// SPDX-License-Identifier: Apache-2.0
// Tokens that stand for themselves wherever their text occurs, whatever the model would make of it:
// "<|endoftext|>", runs of spaces. Found before the text is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;  // Gives no text, and stands for itself only where that is asked for.
  bool is_single_word = false;  // Only where no letter or digit is beside it.
  bool takes_left_space = false;
  bool takes_right_space = false;
  bool is_normalized = false;  // Is looked for in the normalized text.
};

// A set of texts that are looked for together.
class AddedTokens {
 public:
  // `contents[i]` is what tokens[i] is looked for as: its content, normalized or not.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  // Whether there is any, and any that is not special.
  bool is_empty(bool with_special) const { return with_special ? none_ : none_plain_; }

  // Calls in turn for text between tokens (id nullopt) and tokens. Of those that begin at one place
  // the longest counts. Special ones count as text unless `with_special`.
  void split(std::string_view text, bool with_special,
             const std::function<void(std::string_view, std::optional<int32_t>)>& take) const;

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t token = 0;
  };
  std::optional<Match> next_match(std::string_view text, size_t from) const;
  int32_t child(int32_t node, char byte) const;

  std::vector<AddedToken> tokens_;
  bool none_ = true;
  bool none_plain_ = true;
  // A trie: (node, byte) to node, and the token that ends at a node, or -1.
  std::unordered_map<int64_t, int32_t> children_;
  std::vector<int32_t> token_at_ = {-1};
  std::array<bool, 256> begins_{};
};

}  // namespace tessera
