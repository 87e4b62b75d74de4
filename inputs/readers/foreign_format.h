// SPDX-License-Identifier: Apache-2.0
// Recognises data that is not text by its first bytes, before it is read as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inputs/readers/byte_source.h"

namespace tessera {

struct ForeignFormat {
  std::string_view name;     // "Parquet".
  std::string advice;        // How to convert it to text: a command in which {} is the file.
  int64_t corpus_bytes = 1;  // Least size of a corpus; 0: this format rarely holds text.
};

inline constexpr size_t kHeadBytes = 8192;

// Returns the format of a file that begins with `head`, at most its first kHeadBytes; nullopt for
// text and unknown formats.
std::optional<ForeignFormat> foreign_format(std::string_view head);

// Returns "is Parquet, which is not read as text; convert it: …", with the file's path in the
// command.
std::string describe(const ForeignFormat& format, const std::filesystem::path& path);

// Returns the first bytes of a source, which then continues at its beginning.
std::string head_of(ByteSource& source);
std::string head_of_file(const std::filesystem::path& path);  // Decompressed by name.

// Decompresses a file whose name ends in .gz, .zst and the like, unless its first bytes are those
// of another format, such as a Git LFS pointer.
std::unique_ptr<ByteSource> decompress_by_name(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path);

}  // namespace tessera
