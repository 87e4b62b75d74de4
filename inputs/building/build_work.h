// SPDX-License-Identifier: Apache-2.0
// The units of a build, worked on by several threads: one at a time reads a unit, any may tokenise
// its batches, and they are put down in the order in which they were read.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "inputs/building/build_ledger.h"
#include "inputs/building/token_build.h"
#include "inputs/building/unit_source.h"

namespace tessera {

// Inputs [begin, end) of a build.
struct UnitInputs {
  size_t begin = 0;
  size_t end = 0;
};
std::vector<UnitInputs> units_of(const std::vector<BuildInput>& inputs, int64_t unit_bytes);

// Appends the ids of the batch's texts to its tokens, and frees the texts.
void tokenise(const TokenBuild& build, DocumentBatch* batch);

class BuildWork {
 public:
  BuildWork(const TokenBuild& build, BuildLedger* ledger);
  ~BuildWork();

  void run(BuildProgress* progress);  // Error if the first unit that matters failed.
  // Of the units that make up the output, in order; the last may hold more than is wanted.
  std::vector<UnitProgress> finished() const;

 private:
  struct Unit;
  using Hold = std::unique_lock<std::mutex>;

  void start_unit(size_t number);
  void work();
  Unit* choose(Hold& hold);
  Unit* free_unit();
  bool read_batch(Hold& hold, Unit& unit, int64_t* number, DocumentBatch* batch);
  DocumentBatch take_spare();
  void give_back(DocumentBatch batch);
  int64_t bytes_allowed() const { return 3 * build_.threads * build_.batch_bytes; }
  // Of the bytes allowed: a batch of many short documents counts as a full one.
  int64_t charge(const DocumentBatch& batch) const;
  void advance(Hold& hold, Unit& unit);
  UnitProgress put_down(Unit& unit, const DocumentBatch& batch) const;
  UnitProgress finish(Unit& unit) const;
  void record(Unit& unit, const UnitProgress& progress) const;
  void drop_waiting(Unit& unit);
  void save();
  void note_totals();
  bool is_full(Split split) const;
  bool is_enough() const;
  bool is_over() const;
  std::vector<std::thread> start_workers();
  void watch(Hold& hold, BuildProgress* progress);
  void raise() const;
  BuildStatus status() const;

  const TokenBuild& build_;
  BuildLedger* const ledger_;
  const std::vector<UnitInputs> unit_inputs_;
  std::vector<SplitSet> later_splits_;  // What the units from this one on can give.

  mutable std::mutex mutex_;  // Of all that follows.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Unit>> units_;
  size_t started_ = 0;                                 // Units that were taken up, or passed over.
  size_t done_in_front_ = 0;                           // The units before it are done.
  std::array<int64_t, kNumSplits> tokens_of_done_{};   // Those before it.
  std::array<int64_t, kNumSplits> tokens_in_front_{};  // And of that one so far.
  // Of text or tokens, read and not yet written. This bounds the memory: a slow disk or a thread
  // that is not run for a while would let batches pile up.
  int64_t bytes_in_flight_ = 0;
  std::vector<DocumentBatch> spare_;  // Written; used again, so that memory is not fragmented.
  int64_t bytes_before_ = 0;          // On disk, done by an earlier process.
  size_t first_failed_;               // The number of units if none has.
  std::exception_ptr fatal_;          // Nothing to do with any input: the disk is full.
  bool is_stopped_ = false;
  int workers_left_ = 0;
};

}  // namespace tessera
