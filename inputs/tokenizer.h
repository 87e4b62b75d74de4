// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Ids are the tokenizer's own, 0 included (docs/adr/0007): what is
// padding is said by segment ids and weights, never by an id. Kinds are in inputs/tokenizers/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Const calls may run on several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // What make_tokenizer makes it from again: "bytes", or a path.
  virtual const std::string& name() const = 0;
  // Equal exactly when two tokenizers give equal ids for every text; kept in token files.
  virtual const std::string& fingerprint() const = 0;
  // All that it is, in a form that token files carry along (tokenizer_of_definition): a run needs
  // no tokenizer file beside its tokens.
  virtual const std::string& definition() const = 0;
  virtual int64_t vocab_size() const = 0;  // Ids are below it.

  // Appends the ids of a document or a piece of text. Names of special tokens in it are text like
  // any other; bytes that are no UTF-8 are encoded as each tokenizer's reference does (headers of
  // the kinds). No start or end tokens are added.
  virtual void encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, &ids);
    return ids;
  }
  // The same, but names of special tokens stand for them: for prompts.
  virtual std::vector<int32_t> encode_with_special(std::string_view text) const {
    return encode(text);
  }
  // Ids beyond the vocabulary, which a padded model may draw, and special tokens give no text.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  // The bytes of text that an id stands for, of which bits per byte are counted: 0 for special
  // tokens.
  virtual int32_t byte_length(int32_t id) const = 0;

  // What stands before a document's first token where labels are shifted right, and what unprompted
  // text begins with.
  virtual int32_t start_id() const { return 0; }
  // What ends a document, if the tokenizer has such a token ("<|endoftext|>", "</s>").
  virtual std::optional<int32_t> end_id() const { return std::nullopt; }
  // Whether a sample may hold this id: not padding, nor a reserved one.
  virtual bool may_be_drawn(int32_t id) const { return id >= 0 && id < vocab_size(); }
  // The id of a token by its name, such as "<|endoftext|>"; nullopt if there is none.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  // Names of special tokens, which messages suggest for one that there is not.
  virtual std::vector<std::string> special_tokens() const { return {}; }
};

// "bytes" (byte b is id b + 1, 257 ids; 0 is reserved), or a path: a SentencePiece model (*.model),
// a Hugging Face tokenizer.json or a directory with one, or GPT-2's vocab.json with merges.txt
// beside it. Error with the nearest name, or with what the file lacks.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// From Tokenizer::definition(); `name` is what it was called. Such definitions come from files:
// Error for one that is broken.
std::unique_ptr<Tokenizer> tokenizer_of_definition(const std::string& name,
                                                   const std::string& definition);

}  // namespace tessera
