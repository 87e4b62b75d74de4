// SPDX-License-Identifier: Apache-2.0
// Documents of one shard, one after another, in bounded memory: text files, lines of JSON with a
// field (C4's form), each plain or compressed (.gz, .zst). Not tokens, and not the order of shards.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

// What becomes of a document that cannot be read: a broken JSON line, a line without the field, or
// text that is not UTF-8.
enum class BrokenDocuments {
  kFail,  // Error with file and line.
  kSkip,  // Leave it out and count it; the counts are told.
};

constexpr std::array<EnumName<BrokenDocuments>, 2> enum_names(BrokenDocuments) {
  return {{{BrokenDocuments::kFail, "fail"}, {BrokenDocuments::kSkip, "skip"}}};
}

struct ReadOptions {
  std::string text_field = "text";  // Of lines of JSON.
  BrokenDocuments broken = BrokenDocuments::kFail;
  bool require_utf8 = true;  // Else bytes pass as they are.
  // Of a text file: the whole file is a document, unless this is not empty and parts it.
  std::string separator;
  // What is longer is broken. A reader's memory is bounded by a few times this.
  int64_t max_document_bytes = int64_t{1} << 30;
  // Only documents number `first`, `first` + `every`, `first` + 2 `every`, … are given out, skipped
  // or counted as broken.
  int64_t every = 1;
  int64_t first = 0;
};

// Of a shard. kAuto goes by its name: *.jsonl, *.ndjson and *.json are lines of JSON, all else is
// text.
enum class DocumentFormat { kAuto, kText, kJsonLines };

constexpr std::array<EnumName<DocumentFormat>, 3> enum_names(DocumentFormat) {
  return {{{DocumentFormat::kAuto, "auto"},
           {DocumentFormat::kText, "text"},
           {DocumentFormat::kJsonLines, "jsonl"}}};
}

// A place between two documents, to which a reader can return.
struct ShardPosition {
  int64_t document = 0;  // Those before it, broken ones included; of JSON, lines, blank ones too.
  int64_t offset = 0;    // Bytes of (decompressed) text before it.
};

struct SkipCounts {
  int64_t broken = 0;  // Documents left out.
  std::string first;   // What was wrong with the first: "c4.jsonl.gz:17: …".
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // The next document's text; nullopt at the end. Blank lines of JSON are no documents. An I/O
  // error, or a stream cut short, is always an Error, whatever `broken` says.
  virtual std::optional<std::string> next() = 0;
  // Moves past a document without parsing it; false at the end.
  virtual bool skip() = 0;
  virtual ShardPosition position() const = 0;            // After the last document given out.
  virtual void seek(const ShardPosition& position) = 0;  // Of this shard, as it was then.
  virtual const SkipCounts& skipped() const = 0;
  // Of the file as it lies on disk, compressed or not; for progress.
  virtual int64_t bytes_read() const = 0;
};

// Files that end in .gz or .zst are decompressed (gzip of several members, Zstandard of several
// frames). UTF-8's byte order mark at the beginning is left out, unless bytes pass as they are.
std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path,
                                               const ReadOptions& options = {},
                                               DocumentFormat format = DocumentFormat::kAuto);

// The same of bytes in memory, as if they were that file's.
std::unique_ptr<DocumentReader> documents_in_memory(std::string bytes, const std::string& path,
                                                    const ReadOptions& options = {},
                                                    DocumentFormat format = DocumentFormat::kAuto);

// What kAuto stands for.
DocumentFormat document_format(const std::filesystem::path& path);

}  // namespace tessera
