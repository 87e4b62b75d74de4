// SPDX-License-Identifier: Apache-2.0
// Flat tokens: documents as one sequence of token ids in an HDF5 file (docs/formats.md). A group
// per split has `encoded_tokens` (2 * id + is_start) and `seq_starts`; the file also holds the
// tokenizer's definition. Files are untrusted: the reader checks every id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inputs/token_row.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

constexpr int64_t kFlatTokensVersion = 1;

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
  // For tokenizer_of_definition; "" if the file has none (files of other programs). Read at each
  // call.
  std::string tokenizer_definition() const;
  // Description of the inputs of the build; "" if absent.
  const std::string& source() const;
  // Identifies the data, wherever the file is: sizes, and a checksum of a sample.
  const std::string& fingerprint() const;

  // Encoded tokens [begin, begin + size).
  void read(int64_t begin, std::span<uint32_t> encoded) const;
  // Entries [begin, begin + size) of `seq_starts`, which has num_documents() + 1.
  void read_starts(int64_t begin, std::span<uint64_t> starts) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The tokenizer as recorded in a token file.
struct TokenizerIdentity {
  std::string name;
  std::string fingerprint;
  std::string definition;  // "": not in the file.
  int64_t vocab_size = 0;
};
TokenizerIdentity identity_of(const Tokenizer& tokenizer);
// For ids from an unknown tokenizer.
TokenizerIdentity unknown_tokenizer(int64_t vocab_size);

struct FlatTokensWriterOptions {
  int compression = 0;  // Deflate level 1-9; 0: none.
  std::string source;
};

// Writes splits one after another. `finish` renames the complete file into place.
class FlatTokensWriter {
 public:
  FlatTokensWriter(const std::filesystem::path& path, TokenizerIdentity tokenizer,
                   const FlatTokensWriterOptions& options = {});
  FlatTokensWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   const FlatTokensWriterOptions& options = {})
      : FlatTokensWriter(path, identity_of(tokenizer), options) {}
  ~FlatTokensWriter();  // Without `finish`, removes the temporary file.

  void begin_split(const std::string& split);
  void add_document(std::span<const int32_t> ids);     // Skips empty documents.
  void extend_document(std::span<const int32_t> ids);  // More ids of the last document.
  int64_t split_tokens() const;                        // So far.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
