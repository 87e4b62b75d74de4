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
  explicit CompressedSource(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)) {}

  size_t read(char* into, size_t size) final;
  void seek(int64_t offset) final;
  int64_t size() const final { return -1; }
  const std::string& where() const final { return compressed_->where(); }
  int64_t bytes_read() const final { return compressed_->bytes_read(); }

 protected:
  // Reads as `read` does. Consumes compressed bytes from [next_, end_), which `refill` fills.
  virtual size_t decompress(char* into, size_t size) = 0;
  // Resets the decompressor to the beginning of the stream.
  virtual void restart() = 0;

  // Reads more compressed bytes, once all are consumed; false at the end.
  bool refill();
  [[noreturn]] void fail_truncated(const char* format) const;
  [[noreturn]] void fail_damaged(const char* format, const char* reason) const;

  const char* next_ = nullptr;
  const char* end_ = nullptr;

 private:
  std::unique_ptr<ByteSource> compressed_;
  std::vector<char> buffer_;
  int64_t position_ = 0;  // In decompressed bytes.
};

}  // namespace tessera
