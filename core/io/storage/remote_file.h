// SPDX-License-Identifier: Apache-2.0
// Reads one object like a file, in blocks that are read ahead and cached.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/io/storage/storage.h"

namespace tessera {

class RemoteFile {
 public:
  explicit RemoteFile(const std::string& url);  // Error if there is no such object.

  int64_t size() const { return object_.size; }
  // Reads within one block; 0 at the end. Thread-safe.
  size_t read_some_at(int64_t offset, std::span<std::byte> bytes) const;
  void prefetch(int64_t offset, int64_t bytes) const;  // Starts to read these bytes.

 private:
  ObjectInfo object_;
  // The latest block. Only for reading ahead, so races between threads are harmless.
  mutable std::atomic<int64_t> latest_ = -1;
};

}  // namespace tessera
