// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizer.h"

#include "core/base/error.h"

namespace tessera {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  int64_t vocab_size() const override { return 257; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids(text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]) + 1;
    return ids;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (int32_t id : ids)
      if (id >= 1 && id < vocab_size()) text += static_cast<char>(id - 1);
    return text;
  }

 private:
  std::string name_ = "bytes";
  std::string fingerprint_ = "bytes-plus-1";
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  fail("no tokenizer '{}'; there is: bytes{}", name, did_you_mean(name, {"bytes"}));
}

}  // namespace tessera
