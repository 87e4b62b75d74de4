// SPDX-License-Identifier: Apache-2.0
// Sequential bytes of a file or of a compressed stream. Every read failure is an Error that names
// the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

namespace tessera {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads at most `size` bytes, possibly fewer; 0 only at the end.
  virtual size_t read(char* into, size_t size) = 0;
  // Continues from byte `offset`. Error if the source has fewer bytes.
  virtual void seek(int64_t offset) = 0;
  virtual int64_t size() const = 0;  // In bytes; -1 if it is unknown: decompressed data.
  // Bytes consumed of the file on disk, compressed or not.
  virtual int64_t bytes_read() const = 0;
  // The file name, for messages.
  virtual const std::string& where() const = 0;
};

// Reads `size` bytes, fewer only at the end; returns how many.
size_t read_fully(ByteSource& source, char* into, size_t size);

// Returns the value with these bytes.
template <typename T>
T from_bytes(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);

// The extension in lower case: ".jsonl".
std::string lower_extension(const std::filesystem::path& path);

}  // namespace tessera
