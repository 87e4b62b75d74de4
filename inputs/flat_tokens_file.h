// SPDX-License-Identifier: Apache-2.0
// Flat tokens: documents as one long run of token ids in an HDF5 file (docs/formats.md). Group per
// split with `encoded_tokens` (2 * id + is_start) and `seq_starts`; beside them the tokenizer's
// definition, so that a run needs no tokenizer file. Files come from anywhere, so
// the reader trusts nothing: every id it gives out has been checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inputs/tokenizer.h"

namespace tessera {

constexpr int64_t kFlatTokensVersion = 1;

inline uint32_t encode_token(int32_t id, bool is_start) {
  return 2 * static_cast<uint32_t>(id) + (is_start ? 1 : 0);
}
inline int32_t token_id(uint32_t encoded) { return static_cast<int32_t>(encoded >> 1); }
inline bool is_document_start(uint32_t encoded) { return (encoded & 1) != 0; }

// One split of a file. Reading is thread-safe.
class FlatTokensReader {
 public:
  FlatTokensReader(const std::filesystem::path& path, const std::string& split);
  ~FlatTokensReader();
  FlatTokensReader(FlatTokensReader&&) noexcept;

  // The splits of a file, sorted.
  static std::vector<std::string> splits(const std::filesystem::path& path);

  int64_t num_tokens() const;
  int64_t num_documents() const;
  int64_t max_token_id() const;
  int64_t vocab_size() const;
  const std::string& tokenizer_name() const;
  const std::string& tokenizer_fingerprint() const;
  // For tokenizer_of_definition; "" if the file carries none, as those of other programs may. Read
  // from the file at each call.
  std::string tokenizer_definition() const;
  // What the file was built from, for people; "" if it does not say.
  const std::string& source() const;
  // Tells this data from other data, wherever the file lies: sizes, and a checksum of a sample.
  const std::string& fingerprint() const;

  // Tokens [begin, begin + size), encoded.
  void read(int64_t begin, std::span<uint32_t> encoded) const;
  // Entries [begin, begin + size) of `seq_starts`, which has num_documents() + 1.
  void read_starts(int64_t begin, std::span<uint64_t> starts) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a file says of the tokenizer that made its ids.
struct TokenizerIdentity {
  std::string name;
  std::string fingerprint;
  std::string definition;  // "": the file carries none.
  int64_t vocab_size = 0;
};
TokenizerIdentity identity_of(const Tokenizer& tokenizer);
// Of ids that come without their tokenizer: no more is known than how many there are.
TokenizerIdentity unknown_tokenizer(int64_t vocab_size);

struct FlatTokensWriterOptions {
  int compression = 0;  // Deflate level 1-9; 0 for none.
  std::string source;
};

// Writes splits one after another; the file appears under its name in `finish`, whole.
class FlatTokensWriter {
 public:
  FlatTokensWriter(const std::filesystem::path& path, TokenizerIdentity tokenizer,
                   const FlatTokensWriterOptions& options = {});
  FlatTokensWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   const FlatTokensWriterOptions& options = {})
      : FlatTokensWriter(path, identity_of(tokenizer), options) {}
  ~FlatTokensWriter();  // Without `finish`, nothing is left behind.

  void begin_split(const std::string& split);
  void add_document(std::span<const int32_t> ids);     // An empty one is left out.
  void extend_document(std::span<const int32_t> ids);  // More of the last one.
  int64_t split_tokens() const;                        // So far.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
