// SPDX-License-Identifier: Apache-2.0
// A source for readers that returns bytes in memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/document_format.h"

namespace tessera {

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string bytes, std::string where)
      : bytes_(std::move(bytes)), where_(std::move(where)) {}

  size_t read(char* into, size_t size) override {
    const size_t got = std::min(size, bytes_.size() - at_);
    std::memcpy(into, bytes_.data() + at_, got);
    at_ += got;
    return got;
  }
  void seek(int64_t offset) override {
    if (offset > static_cast<int64_t>(bytes_.size()))
      fail("{}: has {} bytes, cannot resume at byte {}; the file has been truncated", where_,
           bytes_.size(), offset);
    at_ = static_cast<size_t>(offset);
  }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  int64_t bytes_read() const override { return static_cast<int64_t>(at_); }
  const std::string& where() const override { return where_; }

 private:
  std::string bytes_;
  std::string where_;
  size_t at_ = 0;
};

inline std::unique_ptr<DocumentReader> documents_in_memory(std::string bytes,
                                                           const std::string& path,
                                                           const ReadOptions& options = {}) {
  return read_documents(std::make_unique<MemorySource>(std::move(bytes), path), path, options);
}

}  // namespace tessera
