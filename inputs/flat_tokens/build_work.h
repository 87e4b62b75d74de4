// SPDX-License-Identifier: Apache-2.0
// The multi-threaded part of a build. Work is divided into units. One thread at a time reads a
// unit, any thread tokenises its batches, and batches are written in the order in which they were
// read.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_journal.h"

namespace tessera {

struct BuildStatus {
  int64_t bytes = 0;  // On disk, read and tokenised.
  int64_t total_bytes = 0;
  int64_t bytes_before = 0;  // Done by an earlier process; included in `bytes`.
  int64_t tokens = 0;
  double seconds = 0.0;
};

class BuildWork {
 public:
  BuildWork(const TokenBuild& build, BuildJournal* journal);
  ~BuildWork();

  // Calls `on_tick` about ten times a second. Error if the first relevant unit failed.
  void run(const std::function<void()>& on_tick);
  BuildStatus status() const;  // May be called by `on_tick`.
  // Returns the progress of the units in the output, in order; the last may have extra tokens.
  std::vector<UnitProgress> finished() const;

 private:
  struct Unit;
  using Hold = std::unique_lock<std::mutex>;

  void start_unit(size_t number);
  void work();
  void work_while_needed(Hold& hold);
  Unit* choose(Hold& hold);
  Unit* free_unit();
  bool read_batch(Hold& hold, Unit& unit, int64_t* number, DocumentBatch* batch);
  DocumentBatch take_buffer();
  void return_buffer(DocumentBatch batch);
  int64_t bytes_allowed() const { return 3 * build_.threads * build_.batch_bytes; }
  // Counts at least a full batch, because many short documents have overhead.
  int64_t charge(const DocumentBatch& batch) const;
  void advance(Hold& hold, Unit& unit);
  void write(Hold& hold, Unit& unit, std::optional<DocumentBatch> batch);
  UnitProgress write_batch(Unit& unit, const DocumentBatch& batch) const;
  UnitProgress finish(Unit& unit) const;
  void record(Unit& unit, const UnitProgress& progress) const;
  void drop_waiting(Unit& unit);
  void save();
  void update_totals();
  bool is_full(Split split) const;
  bool is_enough() const;
  bool is_over() const;
  std::vector<std::thread> start_workers();

  const TokenBuild& build_;
  BuildJournal* const journal_;
  const std::vector<std::span<const BuildInput>> unit_inputs_;
  std::vector<SplitSet> later_splits_;  // [i]: splits that units from i on contribute to.

  mutable std::mutex mutex_;  // Guards all members below.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Unit>> units_;
  size_t started_ = 0;                                     // Units started or skipped.
  size_t num_leading_done_ = 0;                            // All units before it are done.
  std::array<int64_t, kNumSplits> leading_done_tokens_{};  // Tokens of these units,
  std::array<int64_t, kNumSplits> leading_tokens_{};       // and of the next one so far.
  // Bytes of text or tokens read and not yet written. Bounds memory when the disk or a thread is
  // slow.
  int64_t bytes_in_flight_ = 0;
  std::vector<DocumentBatch> free_buffers_;  // Reused, to avoid fragmentation.
  int64_t bytes_before_ = 0;                 // On disk, done by an earlier process.
  size_t first_failed_;                      // The number of units if none has failed.
  std::exception_ptr fatal_;  // Not specific to an input: for example, the disk is full.
  bool is_stopped_ = false;
  int workers_left_ = 0;
};

}  // namespace tessera
