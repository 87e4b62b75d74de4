// SPDX-License-Identifier: Apache-2.0
// Work files of an unfinished build: parts, which hold the tokens of one unit and split (ids and
// document lengths), and a journal of progress. Not a stable format.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "inputs/flat_tokens/build_inputs.h"

namespace tessera {

struct PartSizes {
  int64_t ids = 0;
  int64_t lengths = 0;
};

class PartWriter {
 public:
  // Truncates existing files to `sizes` and appends. Creates no file before the first token.
  PartWriter(std::filesystem::path stem, const PartSizes& sizes);

  void append(const DocumentIds& documents);
  void sync();  // Returns when all data is on disk.
  const PartSizes& sizes() const { return sizes_; }

 private:
  std::filesystem::path stem_;
  PartSizes sizes_;
  std::optional<ByteFile> ids_;
  std::optional<ByteFile> lengths_;
  bool has_unsynced_ = false;
};

// Tokens [begin, end).
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Visits the ids of the range in order, in runs. `continues`: the run belongs to the document
// before it, even if that begins before the range. Reads no other ids.
void read_part(const std::filesystem::path& stem, const PartSizes& sizes, const TokenRange& range,
               const std::function<void(std::span<const int32_t> ids, bool continues)>& visit);

struct UnitProgress {
  UnitPosition position;
  std::array<PartSizes, kNumSplits> parts;
  SkippedRecords skipped;
  int64_t bytes_on_disk = 0;
  bool is_done = false;
};

// Everything that determines the bytes of the output, one line each: "tokenizer: bytes".
using BuildSettings = std::vector<std::string>;

// The folder of an unfinished build beside its output. It survives a kill at any moment, and one
// process uses it at a time.
class BuildJournal {
 public:
  // Resumes an existing build with equal settings, else starts over. Error if another process
  // builds the same file.
  BuildJournal(const std::filesystem::path& output, const BuildSettings& settings);
  ~BuildJournal();  // Keeps the folder for resuming, if anything was recorded.
  BuildJournal& operator=(BuildJournal&&) = delete;  // Neither copied nor moved.

  const std::filesystem::path& folder() const { return folder_; }
  bool is_resumed() const { return !resumed_units_.empty(); }
  bool has_records() const { return has_records_; }
  // Returns why an existing build was not resumed; "" if there was none.
  const std::string& restart_reason() const { return restart_reason_; }
  std::optional<UnitProgress> progress_of(int64_t unit) const;
  // Returns the file stem of a part.
  std::filesystem::path part(int64_t unit, Split split) const;

  // Returns when the line is on disk. The data it describes must be on disk before.
  void record(int64_t unit, const UnitProgress& progress);
  void remove();  // Removes the folder.

 private:
  void lock(const std::filesystem::path& output);
  bool resume(const BuildSettings& settings);
  bool has_parts(int64_t unit, const UnitProgress& progress) const;
  void clear();

  std::filesystem::path folder_;
  std::optional<HeldDirectory> lock_;
  FileDescriptor journal_;
  std::map<int64_t, UnitProgress> resumed_units_;
  std::string restart_reason_;
  std::mutex mutex_;
  bool has_records_ = false;
  bool is_removed_ = false;
};

// Formats and parses a line of the journal. parse: Error if malformed.
std::string journal_line(int64_t unit, const UnitProgress& progress);
std::pair<int64_t, UnitProgress> parse_journal_line(std::string_view line,
                                                    const std::string& where);

}  // namespace tessera
