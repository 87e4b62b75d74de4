// SPDX-License-Identifier: Apache-2.0
// Added tokens: texts such as "<|endoftext|>" or runs of spaces that are always one token. They are
// found before the text is split into words.
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
  bool is_special = false;      // Decodes to no text; encoded only on request.
  bool is_single_word = false;  // Only if no letter or digit is adjacent.
  bool takes_left_space = false;
  bool takes_right_space = false;
  bool is_normalized = false;  // Matched in the normalized text.
};

// A set of texts to search for together.
class AddedTokens {
 public:
  // `contents[i]`: the text to search for as tokens[i], normalized if the token is.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  // Whether the set is empty (without special tokens: of others).
  bool is_empty(bool with_special) const { return with_special ? none_ : none_plain_; }

  // Calls `take` in order for tokens and for the text between them (id nullopt). The longest match
  // at a position wins. Without `with_special`, special tokens are text.
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
  // A trie: (node, byte) to node, and the token that ends at each node, or -1.
  std::unordered_map<int64_t, int32_t> children_;
  std::vector<int32_t> token_at_ = {-1};
  std::array<bool, 256> begins_{};
};

}  // namespace tessera
