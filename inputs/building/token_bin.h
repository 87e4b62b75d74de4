// SPDX-License-Identifier: Apache-2.0
// Token files of nanoGPT (u16, no header) and llm.c (a header of 256 i32, then u16 or u32), read
// in order. Ids are checked against the vocabulary. Not documents: what ends one is the caller's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "inputs/documents/byte_source.h"

namespace tessera {

class TokenBinReader {
 public:
  // `file_bytes` is the size of what `source` reads, which a header must agree with.
  TokenBinReader(std::unique_ptr<ByteSource> source, int64_t file_bytes, int64_t vocab_size);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t position() const { return position_; }  // Of the next token.
  void seek(int64_t token);
  // The next ids; fewer only at the end. Error for an id that is not below the vocabulary's size.
  size_t read(std::span<int32_t> ids);
  int64_t bytes_read() const { return source_->bytes_read(); }

 private:
  void read_header(int64_t file_bytes);
  // Bytes of the file, all of them.
  void read_whole(char* into, size_t size);

  std::unique_ptr<ByteSource> source_;
  int64_t vocab_size_;
  int64_t header_bytes_ = 0;
  int64_t token_bytes_ = 2;
  int64_t num_tokens_ = 0;
  int64_t position_ = 0;
  std::vector<char> buffer_;
};

}  // namespace tessera
