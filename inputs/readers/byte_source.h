// SPDX-License-Identifier: Apache-2.0
// Sequential bytes of a file or of a compressed stream. Every read failure is an Error that names
// the file.
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
  // Reads at most `size` bytes, possibly fewer; 0 only at the end.
  virtual size_t read(char* into, size_t size) = 0;
  // Continues from byte `offset`. Error if the source has fewer bytes.
  virtual void seek(int64_t offset) = 0;
  // Bytes consumed of the file on disk, compressed or not.
  virtual int64_t bytes_read() const = 0;
  // The file name, for messages.
  virtual const std::string& where() const = 0;
};

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);

// Decompress gzip of any number of members (zlib) or Zstandard of any number of frames (libzstd;
// windows of at most 128 MiB). Truncated or damaged streams and trailing data are Errors. Seeking
// backwards restarts the stream.
std::unique_ptr<ByteSource> decompress_gzip(std::unique_ptr<ByteSource> compressed);
std::unique_ptr<ByteSource> decompress_zstd(std::unique_ptr<ByteSource> compressed);

// The extension in lower case: ".jsonl".
std::string lower_extension(const std::filesystem::path& path);

}  // namespace tessera
