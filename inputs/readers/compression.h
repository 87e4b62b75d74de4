// SPDX-License-Identifier: Apache-2.0
// The compressions of files: each registers its decompressor in a file of its own (gzip_source.cc).
// Truncated or damaged streams and trailing data are Errors. Seeking backwards restarts a stream.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

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

}  // namespace tessera
