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

#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "inputs/token_row.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

constexpr int64_t kFlatTokensVersion = 1;

// One split of a file. Reading is thread-safe.
class FlatTokensReader {
 public:
  FlatTokensReader(const std::filesystem::path& path, const std::string& split);

  // Returns the splits of a file, sorted.
  static std::vector<std::string> splits(const std::filesystem::path& path);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t max_token_id() const { return max_token_id_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  const std::string& tokenizer_fingerprint() const { return tokenizer_fingerprint_; }
  // Returns the input of tokenizer_of_definition; "" if the file has none (files of other
  // programs). Reads it at each call.
  std::string tokenizer_definition() const;
  // Returns the text of manifest.h; "" if the file has none. Reads it at each call.
  std::string manifest() const;
  // Description of the inputs of the build; "" if absent.
  const std::string& source() const { return source_; }
  // Identifies the data, wherever the file is: sizes, and a checksum of a sample.
  const std::string& fingerprint() const { return fingerprint_; }

  // Encoded tokens [begin, begin + size).
  void read(int64_t begin, std::span<uint32_t> encoded) const;
  // Entries [begin, begin + size) of `seq_starts`, which has num_documents() + 1.
  void read_starts(int64_t begin, std::span<uint64_t> starts) const;

 private:
  void check_shapes() const;
  void check_starts() const;
  std::string stored_text(const std::string& dataset) const;

  std::string where_;  // "file:split", for messages.
  Hdf5File file_;
  std::unique_ptr<Hdf5Dataset> tokens_;
  Hdf5Dataset starts_;
  std::unique_ptr<Hdf5DirectReader> direct_;  // Reads `*tokens_`.
  int64_t num_tokens_ = 0;
  int64_t num_documents_ = 0;
  int64_t max_token_id_ = 0;
  int64_t vocab_size_ = 0;
  std::string tokenizer_name_;
  std::string tokenizer_fingerprint_;
  std::string source_;
  std::string fingerprint_;
};

// The tokenizer as recorded in a token file.
struct TokenizerIdentity {
  std::string name;
  std::string fingerprint;
  std::string definition;  // "": not in the file.
  int64_t vocab_size = 0;
};
TokenizerIdentity identity_of(const Tokenizer& tokenizer);
// Returns the identity for ids from an unknown tokenizer.
TokenizerIdentity unknown_tokenizer(int64_t vocab_size);

struct FlatTokensWriterOptions {
  int compression = 0;  // Deflate level 1-9; 0: none.
  std::string source;
  std::string manifest;
};

// Writes splits one after another. `finish` renames the complete file into place.
class FlatTokensWriter {
 public:
  FlatTokensWriter(std::filesystem::path path, TokenizerIdentity tokenizer,
                   const FlatTokensWriterOptions& options = {});
  FlatTokensWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                   const FlatTokensWriterOptions& options = {})
      : FlatTokensWriter(path, identity_of(tokenizer), options) {}
  FlatTokensWriter& operator=(FlatTokensWriter&&) = delete;  // Neither copied nor moved.

  void begin_split(const std::string& split);
  void add_document(std::span<const int32_t> ids);      // Skips empty documents.
  void extend_document(std::span<const int32_t> ids);   // More ids of the last document.
  int64_t split_tokens() const { return num_tokens_; }  // So far.
  void finish();

 private:
  // `first_mark`: the start mark of the first id.
  void append(std::span<const int32_t> ids, uint32_t first_mark);
  void end_split();

  TemporaryName name_;
  TokenizerIdentity tokenizer_;
  FlatTokensWriterOptions options_;
  Hdf5File file_;

  // The current split:
  std::string split_;
  Hdf5Dataset tokens_;
  Hdf5Dataset starts_;
  std::vector<uint32_t> token_block_;
  std::vector<uint64_t> start_block_;
  int64_t num_tokens_ = 0;
  int32_t max_token_id_ = 0;
};

}  // namespace tessera
