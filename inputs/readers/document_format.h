// SPDX-License-Identifier: Apache-2.0
// The formats of documents: each registers its reader in a file of its own (json_documents.cc), or
// in a plugin. A plugin in lib/tessera/readers is loaded when a file needs it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/readers/byte_source.h"
#include "inputs/readers/document_reader.h"

namespace tessera {

struct DocumentFormat {
  std::string_view name;   // As options name it: "jsonl".
  std::string_view title;  // "lines of JSON".
  // In lower case, without that of a compression: ".jsonl". With a '*' at the end it is the
  // beginning of one: ".tfrecord*".
  std::vector<std::string_view> extensions;
  std::string_view record;  // What messages call a document: "line", "row".
  bool is_text = false;     // Files are text; they have no NUL bytes.
  bool has_ids = false;     // It reads ReadOptions::as_ids.
  bool has_records = true;  // Else a file is one document, or several with a separator.
  std::vector<std::string_view> magics = {};  // Any of them begins a file; none: unknown.
  // `source` is not compressed.
  std::unique_ptr<DocumentReader> (*open)(std::unique_ptr<ByteSource> source,
                                          const ReadOptions& options) = nullptr;
};

// DocumentFormat::open of a class.
template <typename Documents>
std::unique_ptr<DocumentReader> read_as(std::unique_ptr<ByteSource> source,
                                        const ReadOptions& options) {
  return std::make_unique<Documents>(std::move(source), options);
}

// Registers a format when a library is loaded; the first of a name counts.
struct DocumentFormatRegistrar {
  explicit DocumentFormatRegistrar(const DocumentFormat& format);
};

// The name that chooses by the first bytes and the name of each file.
inline constexpr std::string_view kAutoFormat = "auto";

// Returns the format of this name. Error for an unknown one, with the nearest.
const DocumentFormat& named_format(std::string_view name);

// Returns the format of a file by its first bytes, which are decompressed, else by its name; of any
// other name it is text.
const DocumentFormat& format_of_file(const std::filesystem::path& path, std::string_view head);

// Returns whether a file has a name of the format, with or without that of a compression.
bool has_name_of(const DocumentFormat& format, const std::filesystem::path& path);

// Returns the format of this name, or of kAutoFormat the one of the file, whose head is read.
const DocumentFormat& document_format(const std::filesystem::path& path, std::string_view name);

// Returns the place of document `number` of a shard, for messages: "a.jsonl:17", "a.txt: document
// 3", or the name alone if the shard is one document.
std::string document_place(std::string_view shard, const DocumentFormat& format,
                           const ReadOptions& options, int64_t number);

// Opens documents. Decompresses files by their names. A UTF-8 byte order mark is removed, unless
// any bytes are accepted. Error for data that is not text (foreign_format.h).
std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path,
                                               const ReadOptions& options = {},
                                               std::string_view format = kAutoFormat);

// Reads documents from any source, like from a file `path`.
std::unique_ptr<DocumentReader> read_documents(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path,
                                               const ReadOptions& options = {},
                                               std::string_view format = kAutoFormat);

}  // namespace tessera
