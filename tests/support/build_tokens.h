// SPDX-License-Identifier: Apache-2.0
// Builds small token files, and reads their contents.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "inputs/flat_tokens/token_build.h"
#include "tests/support/catch.h"

namespace tessera {

// A byte tokenizer with an end token.
class EndedBytes final : public Tokenizer {
 public:
  EndedBytes() {
    name_ = fingerprint_ = definition_ = "ended bytes";
    texts_.assign(256, {TokenText::Kind::kText, "?"});
    texts_.push_back({TokenText::Kind::kSpecial, ""});
    end_id_ = 256;
  }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    for (const char c : text) ids->push_back(static_cast<unsigned char>(c));
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids)
      text += id == 256 ? std::string("|") : std::string(1, static_cast<char>(id));
    return text;
  }
};

inline const EndedBytes kEndedBytes;

// Small portions, so that small corpora need many.
inline TokenBuild small_build_of(const std::vector<std::string>& paths,
                                 const std::filesystem::path& output,
                                 BuildInputOptions options = {}) {
  TokenBuild build;
  build.output = output;
  build.tokenizer = &kEndedBytes;
  build.identity = identity_of(kEndedBytes);
  build.document_end = kEndedBytes.end_id();
  build.end_of_tokens = kEndedBytes.end_id();
  build.validation_fraction = options.validation_fraction;
  options.tokens_have_end_id = true;
  build.from = find_build_inputs(paths, options);
  build.unit_bytes = 20000;
  build.batch_bytes = 500;
  build.checkpoint_bytes = 8000;
  return build;
}

inline TokenBuilt run_build(const TokenBuild& build, std::string* notes = nullptr) {
  std::ostringstream said;
  BuildProgress progress(said, BuildProgress::Mode::kPlain);
  try {
    const TokenBuilt built = build_tokens(build, progress);
    if (notes != nullptr) *notes = said.str();
    return built;
  } catch (const Error&) {
    if (notes != nullptr) *notes = said.str();
    throw;
  }
}

// Documents of a split, as text.
inline std::vector<std::string> documents_of(const std::filesystem::path& path,
                                             const std::string& split) {
  const FlatTokensReader reader(path, split);
  std::vector<uint64_t> starts(static_cast<size_t>(reader.num_documents()) + 1);
  reader.read_starts(0, starts);
  std::vector<uint32_t> encoded(static_cast<size_t>(reader.num_tokens()));
  reader.read(0, encoded);
  std::vector<std::string> documents;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    std::vector<int32_t> ids;
    for (uint64_t at = starts[i]; at < starts[i + 1]; ++at) {
      REQUIRE(is_document_start(encoded[at]) == (at == starts[i]));
      ids.push_back(token_id(encoded[at]));
    }
    documents.push_back(kEndedBytes.decode(ids));
  }
  return documents;
}

}  // namespace tessera
