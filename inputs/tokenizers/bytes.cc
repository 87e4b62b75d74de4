// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/bytes.h"

#include <string>

namespace tessera {
namespace {

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

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace tessera
