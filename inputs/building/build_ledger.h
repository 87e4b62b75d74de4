// SPDX-License-Identifier: Apache-2.0
// What of a build is on disk already: a folder beside the output with the parts of finished and
// half-done units, and a ledger that says how far each has come. It survives any kill, and belongs
// to one process at a time.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "inputs/building/document_batch.h"
#include "inputs/building/part_file.h"

namespace tessera {

struct UnitProgress {
  UnitPosition position;
  std::array<PartSizes, kNumSplits> parts;
  LeftOut left_out;
  int64_t bytes_on_disk = 0;
  bool is_done = false;
};

// What decides the bytes of the output, line by line: "tokenizer: bytes".
using BuildTerms = std::vector<std::string>;

class BuildLedger {
 public:
  // Takes up what is there, if it was done under the same terms; else begins anew. Error if another
  // process builds the same file.
  BuildLedger(const std::filesystem::path& output, int64_t vocab_size, const BuildTerms& terms);
  ~BuildLedger();  // Leaves all as it is, to be gone on with; nothing if nothing was recorded.
  BuildLedger(const BuildLedger&) = delete;
  BuildLedger& operator=(const BuildLedger&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  bool goes_on() const { return !taken_up_.empty(); }
  bool has_records() const { return has_records_; }
  // Why what was there could not be gone on with: "--max_tokens=5 was …"; "" if nothing was.
  const std::string& begun_anew() const { return begun_anew_; }
  std::optional<UnitProgress> progress_of(int64_t unit) const;
  // Where the tokens of a unit are.
  std::filesystem::path part(int64_t unit, Split split) const;

  // Returns when it is on disk. What it tells of must be so before.
  void record(int64_t unit, const UnitProgress& progress);
  void remove();  // All of it: the output is finished.

 private:
  void lock(const std::filesystem::path& output);
  bool take_up(const BuildTerms& terms);
  bool has_parts(int64_t unit, const UnitProgress& progress) const;
  void clear();
  void begin(const BuildTerms& terms);

  std::filesystem::path folder_;
  int64_t vocab_size_;
  int lock_ = -1;
  int ledger_ = -1;
  std::map<int64_t, UnitProgress> taken_up_;
  std::string begun_anew_;
  std::mutex mutex_;
  bool has_records_ = false;
  bool is_removed_ = false;
};

// A line of the ledger, and back. Error for what is none.
std::string ledger_line(int64_t unit, const UnitProgress& progress);
std::pair<int64_t, UnitProgress> parse_ledger_line(std::string_view line, const std::string& where);

}  // namespace tessera
