// SPDX-License-Identifier: Apache-2.0
// Byte-pair tokenizers with the steps of Hugging Face's tokenizers library (added tokens,
// normalizer, pre-tokenizer, merges) and its ids. Bytes that are not UTF-8 are split as U+FFFD and
// encoded as themselves, if the vocabulary has byte tokens.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inputs/tokenizers/bpe_model.h"
#include "inputs/tokenizers/normalizer.h"
#include "inputs/tokenizers/pre_tokenizer.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// A text such as "<|endoftext|>" or a run of spaces that is always one token. Added tokens are
// found before the text is split into words.
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

  // Calls `take` in order for tokens and for the text between them (id nullopt). The longest match
  // at a position is taken. Without `with_special`, special tokens are text.
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

// The member "decoder" of a tokenizer.json: how tokens are written in the vocabulary, such as
// "▁the" for " the" or <0x0A> for a line end.
struct TokenDecoder {
  std::vector<std::pair<std::string, std::string>>
      replacements;              // Applied to each token, in order.
  bool has_byte_tokens = false;  // <0x0A> is a byte.
  std::string end_suffix;        // Becomes a space.
  char strip = ' ';
  int64_t strip_left = 0;   // Removed from the beginning of the text, up to this many times,
  int64_t strip_right = 0;  // and from its end.

  // Returns the bytes of a token that is not written in the byte-level alphabet.
  std::string bytes_of(std::string_view token) const;
  // Applies the strips to a whole text.
  std::string stripped(std::string text) const;
};

// The parts of a byte-pair tokenizer.
struct BpeParts {
  std::string name;
  std::string definition;
  BpeDefinition model;
  std::optional<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::vector<AddedToken> added;
  TokenDecoder decoder;
  std::optional<int32_t> start_id;
  std::optional<int32_t> end_id;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);
  ~BpeTokenizer() override;

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override;
  std::vector<int32_t> encode_with_special(std::string_view text) const override;
  std::string decode(const std::vector<int32_t>& ids) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::vector<std::string> special_tokens() const override;

 private:
  struct Workspace;  // Scratch memory of one call.

  void add_texts(const BpeParts& parts);
  void encode_text(std::string_view text, bool with_special, Workspace* workspace,
                   std::vector<int32_t>* ids) const;
  void encode_piece(const TextPiece& piece, Workspace* workspace, std::vector<int32_t>* ids) const;
  void encode_word(std::string_view word, Workspace* workspace, std::vector<int32_t>* ids) const;

  BpeModel model_;
  std::optional<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  const WordScanner* scanner_;  // Set if it is the only step of pre_tokenizer_.
  std::unique_ptr<AddedTokens> before_normalizing_;
  std::unique_ptr<AddedTokens> after_normalizing_;
  std::vector<AddedToken> added_;
  TokenDecoder decoder_;
  // Unused workspaces.
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace tessera
