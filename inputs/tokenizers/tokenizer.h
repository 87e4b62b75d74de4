// SPDX-License-Identifier: Apache-2.0
// Converts text to token ids and back. All ids are ordinary, 0 included (docs/adr/0007): padding is
// marked by segment ids and weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {

// A text that needs more steps or memory than a pattern may use. With broken=skip, builds and
// streams skip and count it.
class TextLimitError final : public Error {
 public:
  using Error::Error;
};

// The text of a token id.
struct TokenText {
  enum class Kind {
    kAbsent,   // A gap in the ids.
    kText,     // Decodes to its bytes.
    kSpecial,  // Decodes to nothing.
  };
  Kind kind = Kind::kAbsent;
  std::string bytes;
};

// Const calls are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // The argument of make_tokenizer: "bytes", or a path.
  const std::string& name() const { return name_; }
  // Equal if and only if two tokenizers give equal ids for every text; stored in token files.
  const std::string& fingerprint() const { return fingerprint_; }
  // The complete tokenizer as a string (tokenizer_of_definition), stored in token files so that a
  // run needs no tokenizer file.
  const std::string& definition() const { return definition_; }
  int64_t vocab_size() const { return static_cast<int64_t>(texts_.size()); }  // Ids are below it.

  // Appends the ids of a text. Names of special tokens are ordinary text, and no start or end
  // tokens are added. Bytes that are not UTF-8 are encoded as in each tokenizer's reference.
  virtual void encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, &ids);
    return ids;
  }
  // Appends ids with names of special tokens recognised: for prompts.
  virtual std::vector<int32_t> encode_with_special(std::string_view text) const {
    return encode(text);
  }
  // Special tokens and ids outside the vocabulary (which a padded model may sample) have no text.
  virtual std::string decode(const std::vector<int32_t>& ids) const;
  // Returns the bytes of text of an id, for bits per byte: 0 for special tokens.
  int32_t byte_length(int32_t id) const {
    return has(id) ? static_cast<int32_t>(texts_[static_cast<size_t>(id)].bytes.size()) : 0;
  }

  // Returns the token before a document if labels are shifted right, or before unprompted text.
  int32_t start_id() const { return start_id_; }
  // Returns the token that ends a document, if there is one ("<|endoftext|>", "</s>").
  std::optional<int32_t> end_id() const { return end_id_; }
  // Returns whether sampling may choose this id: the end or a token with text, not padding or
  // reserved ids.
  bool may_be_drawn(int32_t id) const;
  // Returns the id of a token by name, such as "<|endoftext|>".
  virtual std::optional<int32_t> id_of(std::string_view) const { return std::nullopt; }
  // Names of special tokens, for suggestions in messages.
  virtual std::vector<std::string> special_tokens() const { return {}; }

 protected:
  bool has(int32_t id) const { return id >= 0 && id < vocab_size(); }

  // Set by the constructors of derived classes.
  std::string name_;
  std::string fingerprint_;
  std::string definition_;
  std::vector<TokenText> texts_;  // By id.
  int32_t start_id_ = 0;
  std::optional<int32_t> end_id_;
};

// Returns a 128-bit content hash as 32 hexadecimal digits. Not cryptographic.
inline std::string content_hash(std::string_view content) {
  uint64_t one = 0xcbf29ce484222325u;  // FNV-1a, and a second lane with other constants.
  uint64_t other = 0x9e3779b97f4a7c15u;
  for (const char byte : content) {
    one = (one ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    other = (other + static_cast<unsigned char>(byte)) * 0xd6e8feb86659fd93u;
    other ^= other >> 32;
  }
  return fmt::format("{:016x}{:016x}", one, other);
}

// The contents of a tokenizer's files by name: "tokenizer.json", "tokenizer_config.json",
// "special_tokens_map.json", "vocab.json", "merges.txt", "tokenizer.model", and kModelIds.
using TokenizerFiles = std::map<std::string, std::string>;
// Not a file of other tools: bos_token_id and eos_token_id of the model's config.json.
inline constexpr const char* kModelIds = "model_ids.json";

// Reads the files at a path: a file of a tokenizer, or a directory. Error that says what is
// missing.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& path);

std::string definition_of_files(const TokenizerFiles& files);
// Inverse of definition_of_files; empty for "bytes". Error if malformed.
TokenizerFiles files_of_definition(const std::string& definition);

}  // namespace tessera
