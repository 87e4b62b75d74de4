// SPDX-License-Identifier: Apache-2.0
// What compressed sources have in common: a buffer of packed bytes, and seeking by reading on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inputs/documents/byte_source.h"

namespace tessera {

class PackedSource : public ByteSource {
 public:
  explicit PackedSource(std::unique_ptr<ByteSource> packed);
  size_t read(char* into, size_t size) final;
  void seek(int64_t offset) final;
  const std::string& where() const final { return packed_->where(); }
  int64_t bytes_read() const final { return packed_->bytes_read(); }

 protected:
  // As `read`. Takes packed bytes from [next_, end_), which `refill` fills.
  virtual size_t unpack(char* into, size_t size) = 0;
  // Forgets all, to begin again with the first packed byte.
  virtual void begin_again() = 0;

  // More packed bytes, once all are used; false at their end.
  bool refill();
  int64_t position() const { return position_; }  // Of the unpacked bytes.

  const char* next_ = nullptr;
  const char* end_ = nullptr;

 private:
  std::unique_ptr<ByteSource> packed_;
  std::vector<char> buffer_;
  int64_t position_ = 0;
};

}  // namespace tessera
