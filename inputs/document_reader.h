// SPDX-License-Identifier: Apache-2.0
// Documents of one shard, one after another, in bounded memory: text files, lines of JSON with a
// field (C4's form), each plain or compressed (.gz, .zst). Not tokens, and not the order of shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/enum_names.h"

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
};

// A place between two documents, to which a reader can return.
struct ShardPosition {
  int64_t document = 0;  // Those before it, broken ones included.
  int64_t offset = 0;    // Bytes of (decompressed) text before it.
};

struct SkipCounts {
  int64_t broken = 0;  // Documents left out.
  std::string first;   // What was wrong with the first: "c4.jsonl.gz:17: …".
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // The next document's text; nullopt at the end. An I/O error, or a stream cut short, is always an
  // Error, whatever `broken` says.
  virtual std::optional<std::string> next() = 0;
  // Moves past a document without parsing it; false at the end.
  virtual bool skip() = 0;
  virtual ShardPosition position() const = 0;            // After the last document given out.
  virtual void seek(const ShardPosition& position) = 0;  // Of this shard, as it was then.
  virtual const SkipCounts& skipped() const = 0;
};

// By the file's name: *.jsonl and *.json are lines of JSON, all else is text; .gz and .zst after it
// are decompressed.
std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path,
                                               const ReadOptions& options = {});

}  // namespace tessera
