// SPDX-License-Identifier: Apache-2.0
// Reads the documents of one shard in bounded memory: text files, or records with a text field
// (lines of JSON as in C4, rows of Parquet, …), plain or compressed (.gz, .zst, .xz, .bz2).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/hparams/fields.h"
#include "inputs/readers/document_map.h"

namespace tessera {

// The reaction to a record that cannot be read: invalid JSON, a record without the text field, text
// that is not UTF-8, or text for which a tokenizer's pattern needs too many steps.
enum class CorruptRecords {
  kFail,  // Error with file and line.
  kSkip,  // Skip and count.
};

struct ReadOptions {
  std::string text_field = "text";  // The text of a record; "a.b" is the member b of a.
  bool as_ids = false;  // The field is a list of token ids; the text is their int64 values.
  CorruptRecords corrupt_records = CorruptRecords::kFail;
  bool require_utf8 = true;  // Else any bytes are accepted.
  // For text files: separates documents; "": the file is one document.
  std::string separator;
  // Longer documents are corrupt records. A reader uses a few times this much memory.
  int64_t max_document_bytes = int64_t{1} << 30;
  // Only documents number `first`, `first` + `every`, `first` + 2 `every`, … are returned, skipped
  // or counted as corrupt.
  int64_t every = 1;
  int64_t first = 0;
  std::shared_ptr<const BaseDocumentMap> map = nullptr;  // Applied to each document.
};

// A position between two documents, for seeking.
struct ShardPosition {
  // Documents before it, corrupt ones included; for JSON, lines, blank ones included.
  int64_t document = 0;
  int64_t offset = 0;  // Decompressed bytes before it, or what else a format needs to find it.
};

// The corrupt records skipped so far.
struct CorruptRecordCount {
  int64_t count = 0;                            // Records skipped.
  std::string first;                            // Error text of the first: "c4.jsonl.gz:17: …".
  std::map<std::string, int64_t> reasons = {};  // Records by reason: "not UTF-8".

  void add(const CorruptRecordCount& later) {
    if (count == 0) first = later.first;
    count += later.count;
    for (const auto& [reason, records] : later.reasons) reasons[reason] += records;
  }
};

inline constexpr std::string_view kTooSlow = "too slow for the tokenizer's pattern";  // A reason.

// Counts a corrupt record if they are skipped; else Error.
inline void skip_or_fail(CorruptRecords corrupt_records, const std::string& fault,
                         std::string_view reason, CorruptRecordCount* count) {
  if (corrupt_records == CorruptRecords::kFail)
    fail("{} (broken=skip skips and counts corrupt records)", fault);
  count->add({1, fault, {{std::string(reason), 1}}});
}

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // Returns the text of the next document; nullopt at the end. Blank lines of JSON are skipped. I/O
  // errors and truncated streams are Errors, even with CorruptRecords::kSkip.
  virtual std::optional<std::string> next() = 0;
  // Skips a document without parsing it; false at the end.
  virtual bool skip() = 0;
  virtual ShardPosition position() const = 0;            // After the last document returned.
  virtual void seek(const ShardPosition& position) = 0;  // A position of this shard.
  virtual const CorruptRecordCount& corrupt() const = 0;
  // Returns the bytes consumed of the file on disk, for progress.
  virtual int64_t bytes_read() const = 0;
};

}  // namespace tessera
