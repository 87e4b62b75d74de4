// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Id 0 is reserved (padding, and "no token before this one"), so every
// tokenizer's ids begin at 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual const std::string& name() const = 0;
  // Equal exactly when two tokenizers give equal ids for every text; kept in token files.
  virtual const std::string& fingerprint() const = 0;
  virtual int64_t vocab_size() const = 0;  // Ids are below it.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Id 0 and ids beyond the vocabulary, which a padded model may draw, give no text.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
};

// By name: "bytes" (byte b is id b + 1, 257 ids). Error with the nearest name.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace tessera
