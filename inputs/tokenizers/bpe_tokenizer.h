// SPDX-License-Identifier: Apache-2.0
// Byte-pair tokenizers with the steps of Hugging Face's tokenizers library (added tokens,
// normalizer, pre-tokenizer, merges) and its ids. Bytes that are not UTF-8 are split as U+FFFD and
// encoded as themselves, if the vocabulary has byte tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.h"
#include "inputs/tokenizers/added_tokens.h"
#include "inputs/tokenizers/bpe_model.h"
#include "inputs/tokenizers/normalizer.h"
#include "inputs/tokenizers/pre_tokenizer.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

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

  // The bytes of a token that is not written in the byte-level alphabet.
  std::string bytes_of(std::string_view token) const;
  // Applies the strips to a whole text.
  std::string stripped(std::string text) const;
};

// Error that names an unsupported feature. null: tokens are their text.
TokenDecoder make_token_decoder(const Json& json);

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

  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& definition() const override { return definition_; }
  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override;
  std::vector<int32_t> encode_with_special(std::string_view text) const override;
  std::string decode(const std::vector<int32_t>& ids) const override;
  int32_t byte_length(int32_t id) const override;
  int32_t start_id() const override { return start_id_; }
  std::optional<int32_t> end_id() const override { return end_id_; }
  bool may_be_drawn(int32_t id) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::vector<std::string> special_tokens() const override;

 private:
  struct Workspace;  // Scratch memory of one call.
  class Borrowed;

  void add_texts(const BpeParts& parts);
  void encode_text(std::string_view text, bool with_special, std::vector<int32_t>* ids) const;
  void encode_piece(const TextPiece& piece, Workspace* workspace, std::vector<int32_t>* ids) const;
  void encode_word(std::string_view word, Workspace* workspace, std::vector<int32_t>* ids) const;
  bool has(int32_t id) const { return id >= 0 && id < vocab_size(); }

  std::string name_;
  std::string fingerprint_;
  std::string definition_;
  BpeModel model_;
  std::optional<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  const WordScanner* scanner_;  // Set if it is the only step of pre_tokenizer_.
  std::unique_ptr<AddedTokens> before_normalizing_;
  std::unique_ptr<AddedTokens> after_normalizing_;
  std::vector<AddedToken> added_;
  TokenDecoder decoder_;
  std::vector<TokenText> texts_;  // By id.
  int32_t start_id_ = 0;
  std::optional<int32_t> end_id_;
  // Unused workspaces.
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace tessera
