// SPDX-License-Identifier: Apache-2.0
// The compressions of files: each registers its decompressor in a file of its own (gzip_source.cc).
// Truncated or damaged streams and trailing data are Errors. Seeking backwards restarts a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "inputs/readers/byte_source.h"

namespace tessera {

struct Compression {
  std::string_view name;       // "gzip".
  std::string_view extension;  // The end of names, in lower case: ".gz".
  std::string_view magic;      // Bytes of each such file, from magic_offset on.
  size_t magic_offset;
  std::unique_ptr<ByteSource> (*decompress)(std::unique_ptr<ByteSource> compressed);
};

// Registers a compression when a library is loaded.
struct CompressionRegistrar {
  explicit CompressionRegistrar(const Compression& compression);
};

// Return the compression by the name of a file, or by its first bytes; null for others.
const Compression* compression_by_name(const std::filesystem::path& path);
const Compression* compression_by_magic(std::string_view head);

// Returns the name without the extension of a compression: "c4.jsonl" of "c4.jsonl.gz".
std::filesystem::path name_without_compression(const std::filesystem::path& path);

// The common part of decompressors: a buffer of compressed bytes, and seeking by reading.
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
