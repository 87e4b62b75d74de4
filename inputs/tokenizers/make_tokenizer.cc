// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/make_tokenizer.h"

#include <filesystem>

#include "core/base/error.h"
#include "inputs/tokenizers/hugging_face.h"
#include "inputs/tokenizers/sentence_piece.h"

namespace tessera {
namespace {

// Byte b is id b + 1; 0 is reserved.
class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& definition() const override { return name_; }
  int64_t vocab_size() const override { return 257; }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    ids->reserve(ids->size() + text.size());
    for (const char c : text) ids->push_back(static_cast<unsigned char>(c) + 1);
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (int32_t id : ids)
      if (id >= 1 && id < vocab_size()) text += static_cast<char>(id - 1);
    return text;
  }

  int32_t byte_length(int32_t id) const override { return id >= 1 && id < vocab_size() ? 1 : 0; }
  bool may_be_drawn(int32_t id) const override { return id >= 1 && id < vocab_size(); }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }

 private:
  std::string name_ = "bytes";
  std::string fingerprint_ = "bytes-plus-1";
};

std::unique_ptr<Tokenizer> tokenizer_of_files(const std::string& name,
                                              const TokenizerFiles& files) {
  if (files.contains("tokenizer.json")) return make_hugging_face_tokenizer(name, files);
  if (files.contains("vocab.json") && files.contains("merges.txt"))
    return make_gpt2_tokenizer(name, files);
  if (files.contains("tokenizer.model")) return make_sentence_piece_tokenizer(name, files);
  fail("the definition of tokenizer '{}' is damaged", name);
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (!std::filesystem::exists(name))
    fail("no tokenizer '{}': expected 'bytes', a file or a directory{}", name,
         did_you_mean(name, {"bytes"}));
  return tokenizer_of_files(name, read_tokenizer_files(name));
}

std::unique_ptr<Tokenizer> tokenizer_of_definition(const std::string& name,
                                                   const std::string& definition) {
  if (definition == "bytes") return std::make_unique<ByteTokenizer>();
  const ErrorPrefix prefix(name);
  return tokenizer_of_files(name, files_of_definition(definition));
}

}  // namespace tessera
