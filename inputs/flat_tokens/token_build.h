// SPDX-License-Identifier: Apache-2.0
// Builds a token file.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_journal.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens/input_reader.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

struct BuildStatus {
  int64_t bytes = 0;  // On disk, read and tokenised.
  int64_t total_bytes = 0;
  int64_t bytes_before = 0;  // Done by an earlier process; included in `bytes`.
  int64_t tokens = 0;
  double seconds = 0.0;
};

// "[=====>    ] 42 %  1.26 of 3.00 GB  87.3 MB/s  212.40M tokens  0:20 left"; `width` 0: without
// the bar.
std::string build_status_text(const BuildStatus& status, int width);

class BuildProgress {
 public:
  enum class Mode { kTerminal, kPlain, kSilent };

  BuildProgress(std::ostream& out, Mode mode);
  ~BuildProgress();
  // kTerminal if `out` is a terminal.
  static Mode detect(const std::ostream& out);

  // Calls `status_now` only when a line is due.
  void show(const std::function<BuildStatus()>& status_now);
  void say(const std::string& line);  // Prints a line above the progress bar.

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  std::ostream& out_;
  Mode mode_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point next_ = begun_;  // When the next line is due.
  double interval_seconds_ = 1.0;
  bool is_line_open_ = false;
};

struct TokenBuild {
  BuildInputs from;
  std::filesystem::path output;
  const Tokenizer* tokenizer = nullptr;  // May be null if all inputs are tokens.
  TokenizerIdentity identity;            // Recorded in the file.
  std::optional<int32_t> document_end;   // Appended to each text.
  std::optional<int32_t> end_of_tokens;  // The id that ends documents of token inputs.
  ReadOptions read;
  double validation_fraction = 0.1;
  int64_t max_tokens = -1;  // Per split; -1: no limit.
  int compression = 0;      // Deflate level 1-9; 0: none.
  int threads = 1;

  // Granularity of work and of resuming; small in tests.
  int64_t unit_bytes = int64_t{64} << 20;  // Inputs are grouped into units of about this size.
  int64_t batch_bytes = int64_t{1} << 20;  // Of text per batch.
  int64_t checkpoint_bytes = int64_t{256} << 20;  // Of text between two lines of the journal.
  // Set by a signal handler: the build stops with an Error and can be resumed.
  const std::atomic<bool>* stop = nullptr;
};

struct TokenBuilt {
  std::array<int64_t, kNumSplits> tokens{};
  std::array<int64_t, kNumSplits> documents{};
  SkippedRecords skipped;
  std::string description;  // Of the inputs and the validation split.
};

// Builds a token file on several threads; memory is bounded by the threads and the longest
// document. The bytes of the file depend only on inputs and options, not on threads or
// interruptions.
TokenBuilt build_tokens(const TokenBuild& build, BuildProgress& progress);

}  // namespace tessera
