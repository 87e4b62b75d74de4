// SPDX-License-Identifier: Apache-2.0
// Bytes from a file, from memory or from a compressed stream of either, read in order. Not lines
// and not documents. Every failure to read is an Error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace tessera {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At most `size` bytes, as many as are at hand; 0 only at the end.
  virtual size_t read(char* into, size_t size) = 0;
  // Goes on from byte `offset`. Error if the source has fewer bytes.
  virtual void seek(int64_t offset) = 0;
  // How far it has come in the file on disk, compressed or not.
  virtual int64_t bytes_read() const = 0;
  // The file's name, which messages begin with.
  virtual const std::string& where() const = 0;
};

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);
std::unique_ptr<ByteSource> bytes_in_memory(std::string bytes, std::string where);

// What the bytes of `packed` stand for: gzip of any number of members (zlib), Zstandard of any
// number of frames (libzstd; windows of at most 128 MiB). A stream that is cut short, damaged or
// followed by something else is an Error. They seek backwards by beginning again.
std::unique_ptr<ByteSource> decompress_gzip(std::unique_ptr<ByteSource> packed);
std::unique_ptr<ByteSource> decompress_zstd(std::unique_ptr<ByteSource> packed);

}  // namespace tessera
