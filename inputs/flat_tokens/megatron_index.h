// SPDX-License-Identifier: Apache-2.0
// The index (.idx) beside a token file of Megatron-LM: the width of ids, and where documents begin.
// Read in blocks: an index has 20 bytes for each document. Written by `flat_tokens export`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/io/file.h"

namespace tessera {

class MegatronIndex {
 public:
  // The name of the index beside a token file: "a.idx" of "a.bin".
  static std::filesystem::path beside(const std::filesystem::path& tokens);

  // Error for another file, ids of other types than i16, u16 and i32, and sizes that disagree with
  // each other or with `token_file_bytes`.
  MegatronIndex(const std::filesystem::path& path, int64_t token_file_bytes);

  int64_t token_bytes() const { return token_bytes_; }
  int64_t num_documents() const { return num_documents_; }
  // The first token of a document; of num_documents(): the number of tokens. Error if documents are
  // not one after the other.
  int64_t begin(int64_t document);

 private:
  // A block of numbers of the index, starting at `first`.
  struct Block {
    int64_t offset = 0;  // In the file, of number 0.
    int64_t count = 0;
    int64_t first = 0;
    std::vector<int64_t> values;
  };
  int64_t value(Block& block, int64_t at);

  ByteFile file_;
  int64_t token_bytes_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  Block pointers_;   // By sequence: its first byte in the token file.
  Block documents_;  // By document: its first sequence; one more than documents.
};

// Writes the two files of Megatron's form, with one sequence for each document: ids of 2 bytes
// below 65,500 ids in the vocabulary, else of 4, as Megatron does.
class MegatronWriter {
 public:
  // `prefix`: "out" makes out.bin and out.idx.
  MegatronWriter(const std::filesystem::path& prefix, int64_t vocab_size);

  void add(const std::vector<int32_t>& document);
  void finish();  // Both files appear, the index last.
  int64_t num_documents() const { return static_cast<int64_t>(lengths_.size()); }

 private:
  NewFile tokens_;
  NewFile index_;
  bool is_short_;
  std::vector<int32_t> lengths_;
};

}  // namespace tessera
