// SPDX-License-Identifier: Apache-2.0
// The common part of decompressors: a buffer of compressed bytes, and seeking by reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inputs/readers/byte_source.h"

namespace tessera {

class CompressedSource : public ByteSource {
 public:
  // `format` names it in messages: "gzip".
  CompressedSource(std::unique_ptr<ByteSource> compressed, const char* format)
      : compressed_(std::move(compressed)), format_(format) {}
  CompressedSource& operator=(CompressedSource&&) = delete;  // Neither copied nor moved.

  size_t read(char* into, size_t size) final;
  void seek(int64_t offset) final;
  int64_t size() const final { return -1; }
  const std::string& where() const final { return compressed_->where(); }
  int64_t bytes_read() const final { return compressed_->bytes_read(); }

 protected:
  // Decompresses bytes from [next_, end_) on, which is empty at the end of the file only, or while
  // holds_output_. Returns the size of what it wrote; 0 if it needs more bytes.
  virtual size_t decompress(char* into, size_t size) = 0;
  // Resets the decompressor to the beginning of the stream.
  virtual void restart() = 0;

  [[noreturn]] void fail_truncated() const;
  [[noreturn]] void fail_damaged(const char* reason) const;
  [[noreturn]] void fail_memory() const;

  const char* next_ = nullptr;
  const char* end_ = nullptr;
  bool is_inside_ = false;     // A stream (member, frame) has begun and not ended.
  bool has_begun_ = false;     // Any stream so far.
  bool holds_output_ = false;  // The decompressor may return more without more bytes.

 private:
  bool refill();  // Reads more compressed bytes; false at the end.

  std::unique_ptr<ByteSource> compressed_;
  const char* format_;
  std::vector<char> buffer_;
  int64_t position_ = 0;  // In decompressed bytes.
};

// Compression::decompress of a class.
template <typename Source>
std::unique_ptr<ByteSource> decompress_as(std::unique_ptr<ByteSource> compressed) {
  return std::make_unique<Source>(std::move(compressed));
}

}  // namespace tessera
