// SPDX-License-Identifier: Apache-2.0
// The multi-threaded part of a build. Work is divided into units. One thread at a time reads a
// unit, any thread tokenises its batches, and batches are written in the order in which they were
// read.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "core/base/error.h"
#include "core/base/process.h"
#include "inputs/flat_tokens/token_build.h"
#include "inputs/readers/byte_source.h"

namespace tessera {
namespace {

struct Unit {
  // A tokenised batch, or the error that replaced it.
  struct Result {
    std::optional<DocumentBatch> batch;
    std::exception_ptr error;
  };

  int64_t number = 0;
  std::unique_ptr<UnitSource> source;
  std::array<std::unique_ptr<PartWriter>, kNumSplits> parts;
  UnitProgress progress;
  CorruptRecordCount untokenised;  // Since this process opened the unit.
  int64_t bytes_since_record = 0;

  bool is_reading = false;    // By one thread at a time.
  bool is_advancing = false;  // By one thread at a time: writes finished batches.
  bool is_read = false;       // To the end.
  bool is_done = false;
  std::exception_ptr error;
  int64_t next_read = 0;
  int64_t next_written = 0;
  std::map<int64_t, Result> waiting;
};

// Groups consecutive inputs into units of about `unit_bytes`.
std::vector<std::span<const BuildInput>> units_of(const std::vector<BuildInput>& inputs,
                                                  int64_t unit_bytes) {
  std::vector<std::span<const BuildInput>> units;
  int64_t bytes = 0;
  for (const BuildInput& input : inputs) {
    if (units.empty() || bytes + input.bytes > unit_bytes) {
      units.push_back({&input, 0});
      bytes = 0;
    }
    units.back() = {units.back().data(), units.back().size() + 1};
    bytes += input.bytes;
  }
  return units;
}

std::string fault_of(const TokenBuild& build, const TextDocument& document, const Error& error) {
  const BuildInput& input = *document.input;
  return fmt::format(
      "{}: {}", document_place(input.path.string(), *input.format, build.read, document.number),
      error.what());
}

// Reads ids of ReadOptions::as_ids. TextLimitError for one that the vocabulary does not have.
void read_ids(const std::string& text, int64_t vocab_size, std::vector<int32_t>* ids) {
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    const auto id = from_bytes<int64_t>(text.data() + at);
    if (id < 0 || id >= vocab_size)
      throw TextLimitError(fmt::format("id {} at place {}: the vocabulary has 0 to {}", id,
                                       at / sizeof(id), vocab_size - 1));
    ids->push_back(static_cast<int32_t>(id));
  }
}

// Appends the ids of the batch's texts to its tokens, and frees the texts.
void tokenise(const TokenBuild& build, DocumentBatch* batch) {
  std::vector<int32_t> ids;
  for (TextDocument& document : batch->texts) {
    ids.clear();
    try {
      if (build.read.as_ids)
        read_ids(document.text, build.identity.vocab_size, &ids);
      else
        build.tokenizer->encode(document.text, &ids);
    } catch (const TextLimitError& error) {
      skip_or_fail(build.read.corrupt_records, fault_of(build, document, error), kTooSlow,
                   &batch->untokenised);
      continue;
    } catch (const Error& error) {
      throw Error(fault_of(build, document, error));
    }
    const bool has_end = build.read.as_ids && !ids.empty() && ids.back() == build.document_end;
    if (build.document_end && !has_end) ids.push_back(*build.document_end);
    batch->tokens[document.split].add(ids);
    document.text = {};
  }
  batch->texts = {};
}

// Returns the exception that a call throws; null if none.
template <typename Call>
std::exception_ptr error_of(const Call& call) {
  try {
    call();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

SplitSet splits_of(const BuildInput& input) {
  return {input.validation_part != ValidationPart::kWhole,
          input.validation_part != ValidationPart::kNone};
}

class BuildWork {
 public:
  BuildWork(const TokenBuild& build, BuildJournal* journal)
      : build_(build),
        journal_(journal),
        unit_inputs_(units_of(build.from.inputs, build.unit_bytes)),
        later_splits_(unit_inputs_.size() + 1),
        units_(unit_inputs_.size()),
        first_failed_(unit_inputs_.size()) {
    for (size_t i = unit_inputs_.size(); i-- > 0;) {
      later_splits_[i] = later_splits_[i + 1];
      for (const BuildInput& input : unit_inputs_[i])
        for (size_t split = 0; split < kNumSplits; ++split)
          later_splits_[i][split] = later_splits_[i][split] || splits_of(input)[split];
    }
    for (size_t i = 0; i < units_.size(); ++i) {
      units_[i] = std::make_unique<Unit>();
      units_[i]->number = static_cast<int64_t>(i);
      if (auto progress = journal_->progress_of(units_[i]->number)) {
        units_[i]->progress = *std::move(progress);
        units_[i]->is_done = units_[i]->progress.is_done;
        bytes_before_ += units_[i]->progress.bytes_on_disk;
      }
    }
    update_totals();
  }

  // Calls `on_tick` about ten times a second. Error if the first relevant unit failed.
  void run(const std::function<void()>& on_tick) {
    std::vector<std::thread> workers = start_workers();
    for (Hold hold(mutex_); workers_left_ > 0;) {
      changed_.wait_for(hold, std::chrono::milliseconds(100));
      if (build_.stop != nullptr && *build_.stop) {
        is_stopped_ = true;
        changed_.notify_all();
      }
      on_tick();
    }
    for (std::thread& worker : workers) worker.join();
    if (fatal_ != nullptr) std::rethrow_exception(fatal_);
    if (is_enough()) return;
    save();
    if (is_stopped_) fail("{}: interrupted", build_.output.string());
    std::rethrow_exception(units_[first_failed_]->error);
  }

  // May be called by `on_tick`.
  BuildStatus status() const {
    BuildStatus status{.bytes_before = bytes_before_};
    for (const BuildInput& input : build_.from.inputs) status.total_bytes += input.bytes;
    for (const auto& unit : units_) {
      status.bytes += unit->progress.bytes_on_disk;
      for (const PartSizes& part : unit->progress.parts) status.tokens += part.ids;
    }
    return status;
  }

  // Returns the progress of the units in the output, in order; the last may have extra tokens.
  std::vector<UnitProgress> finished() const {
    std::vector<UnitProgress> progress;
    for (size_t i = 0; i <= num_leading_done_ && i < units_.size(); ++i)
      progress.push_back(units_[i]->progress);
    return progress;
  }

 private:
  using Hold = std::unique_lock<std::mutex>;

  void start_unit(size_t number) {
    Unit& unit = *units_[number];
    unit.source = std::make_unique<UnitSource>(unit_inputs_[number], build_);
    unit.source->seek(unit.progress.position, unit.progress.skipped);
    for (size_t split = 0; split < kNumSplits; ++split)
      unit.parts[split] = std::make_unique<PartWriter>(
          journal_->part(unit.number, static_cast<Split>(split)), unit.progress.parts[split]);
  }

  void work() {
    Hold hold(mutex_);
    try {
      work_while_needed(hold);
    } catch (...) {
      if (!hold.owns_lock()) hold.lock();
      fatal_ = std::current_exception();
    }
    --workers_left_;
    changed_.notify_all();
  }

  void work_while_needed(Hold& hold) {
    while (Unit* const unit = choose(hold)) {
      DocumentBatch batch = take_buffer();
      int64_t number = 0;
      if (!read_batch(hold, *unit, &number, &batch)) {
        return_buffer(std::move(batch));
        continue;
      }
      hold.unlock();
      const std::exception_ptr error = error_of([&] { tokenise(build_, &batch); });
      hold.lock();
      unit->waiting[number] = {std::move(batch), error};
      advance(hold, *unit);
    }
  }

  Unit* choose(Hold& hold) {
    for (;;) {
      if (is_over()) return nullptr;
      if (Unit* const unit = free_unit()) return unit;
      changed_.wait(hold);
    }
  }

  // Returns the first unit that can be read now; prefers units already started.
  Unit* free_unit() {
    if (bytes_in_flight_ >= bytes_allowed()) return nullptr;
    int active = 0;
    for (size_t i = num_leading_done_; i < started_ && i < first_failed_; ++i) {
      Unit& unit = *units_[i];
      if (unit.is_done) continue;
      ++active;
      if (!unit.is_reading && !unit.is_read) return &unit;
    }
    while (started_ < first_failed_ && units_[started_]->is_done) ++started_;
    if (active >= build_.threads || started_ >= first_failed_) return nullptr;
    start_unit(started_);
    return units_[started_++].get();
  }

  // Returns false at the unit's end. An error is raised when its batch would be written.
  bool read_batch(Hold& hold, Unit& unit, int64_t* number, DocumentBatch* batch) {
    unit.is_reading = true;
    bytes_in_flight_ += build_.batch_bytes;  // Reserves a full batch until its size is known.
    const SplitSet wanted = {!is_full(kTrain), !is_full(kValidation)};
    hold.unlock();
    bool is_read = false;
    const std::exception_ptr error = error_of([&] { is_read = unit.source->next(wanted, batch); });
    hold.lock();
    unit.is_reading = false;
    bytes_in_flight_ -= build_.batch_bytes;
    if (is_read) {
      bytes_in_flight_ += charge(*batch);
      *number = unit.next_read++;
    } else {
      unit.is_read = true;
      if (error != nullptr) unit.waiting[unit.next_read++] = {std::nullopt, error};
      advance(hold, unit);
    }
    changed_.notify_all();
    return is_read;
  }

  DocumentBatch take_buffer() {
    if (free_buffers_.empty()) {
      DocumentBatch batch;
      // Usually at least one byte per id; untouched memory costs nothing.
      batch.tokens[kTrain].ids.reserve(
          static_cast<size_t>(build_.batch_bytes + build_.batch_bytes / 8));
      return batch;
    }
    DocumentBatch batch = std::move(free_buffers_.back());
    free_buffers_.pop_back();
    return batch;
  }

  // Frees buffers that held long documents.
  void return_buffer(DocumentBatch batch) {
    for (const DocumentIds& tokens : batch.tokens)
      if (static_cast<int64_t>(tokens.ids.capacity()) > 4 * build_.batch_bytes) return;
    batch.clear();
    free_buffers_.push_back(std::move(batch));
  }

  int64_t bytes_allowed() const { return 3 * build_.threads * build_.batch_bytes; }
  // Counts at least a full batch, because many short documents have overhead.
  int64_t charge(const DocumentBatch& batch) const {
    return std::max(batch.bytes, build_.batch_bytes);
  }

  // Writes finished batches in order, and finishes the unit after the last.
  void advance(Hold& hold, Unit& unit) {
    if (unit.is_advancing) return;
    unit.is_advancing = true;
    while (!unit.is_done && unit.error == nullptr && fatal_ == nullptr) {
      const auto next = unit.waiting.find(unit.next_written);
      const bool is_finished = unit.is_read && unit.next_written == unit.next_read;
      if (next == unit.waiting.end() && !is_finished) break;
      Unit::Result result;
      if (!is_finished) {
        result = std::move(next->second);
        unit.waiting.erase(next);
        ++unit.next_written;
      }
      if (result.error != nullptr) {
        if (result.batch) bytes_in_flight_ -= charge(*result.batch);
        unit.error = result.error;
        first_failed_ = std::min(first_failed_, static_cast<size_t>(unit.number));
        break;
      }
      write(hold, unit, std::move(result.batch));
    }
    unit.is_advancing = false;
    if (unit.error != nullptr) drop_waiting(unit);
    changed_.notify_all();
  }

  // Writes a batch, or finishes the unit without one.
  void write(Hold& hold, Unit& unit, std::optional<DocumentBatch> batch) {
    const bool is_finished = !batch;
    hold.unlock();
    UnitProgress progress;
    const std::exception_ptr error =
        error_of([&] { progress = is_finished ? finish(unit) : write_batch(unit, *batch); });
    hold.lock();
    if (batch) {
      bytes_in_flight_ -= charge(*batch);
      return_buffer(*std::move(batch));
    }
    if (error != nullptr) {
      fatal_ = error;
      return;
    }
    unit.progress = std::move(progress);
    unit.is_done = is_finished;
    update_totals();
    changed_.notify_all();
  }

  UnitProgress write_batch(Unit& unit, const DocumentBatch& batch) const {
    UnitProgress progress = unit.progress;
    for (size_t split = 0; split < kNumSplits; ++split) {
      unit.parts[split]->append(batch.tokens[split]);
      progress.parts[split] = unit.parts[split]->sizes();
    }
    progress.position = batch.end;
    progress.skipped = batch.skipped;
    unit.untokenised.add(batch.untokenised);
    progress.skipped.corrupt.add(unit.untokenised);
    progress.bytes_on_disk = batch.bytes_on_disk;
    unit.bytes_since_record += batch.bytes;
    if (unit.bytes_since_record >= build_.checkpoint_bytes) record(unit, progress);
    return progress;
  }

  UnitProgress finish(Unit& unit) const {
    UnitProgress progress = unit.progress;
    progress.is_done = true;
    record(unit, progress);
    unit.source.reset();
    for (auto& part : unit.parts) part.reset();
    return progress;
  }

  void record(Unit& unit, const UnitProgress& progress) const {
    for (const auto& part : unit.parts) part->sync();
    journal_->record(unit.number, progress);
    unit.bytes_since_record = 0;
  }

  // Drops batches after an error.
  void drop_waiting(Unit& unit) {
    for (const auto& [number, result] : unit.waiting)
      if (result.batch) bytes_in_flight_ -= charge(*result.batch);
    unit.waiting.clear();
  }

  // Records progress of unfinished units, for resuming.
  void save() {
    for (size_t i = 0; i < started_; ++i)
      if (units_[i]->bytes_since_record > 0) record(*units_[i], units_[i]->progress);
  }

  // Sums the tokens of the leading finished units, and of the first unfinished one.
  void update_totals() {
    const auto add = [&](std::array<int64_t, kNumSplits>* sums) {
      for (size_t split = 0; split < kNumSplits; ++split)
        (*sums)[split] += units_[num_leading_done_]->progress.parts[split].ids;
    };
    for (; num_leading_done_ < units_.size() && units_[num_leading_done_]->is_done;
         ++num_leading_done_)
      add(&leading_done_tokens_);
    leading_tokens_ = leading_done_tokens_;
    if (num_leading_done_ < units_.size()) add(&leading_tokens_);
  }

  bool is_full(Split split) const {
    return build_.max_tokens >= 0 && leading_tokens_[split] >= build_.max_tokens;
  }

  // Returns whether no remaining input can contribute to the output.
  bool is_enough() const {
    for (size_t split = 0; split < kNumSplits; ++split)
      if (later_splits_[num_leading_done_][split] && !is_full(static_cast<Split>(split)))
        return false;
    return true;
  }

  bool is_over() const {
    return fatal_ != nullptr || is_stopped_ || num_leading_done_ >= first_failed_ || is_enough();
  }

  // Starts workers. Fewer threads than requested produce the same output.
  std::vector<std::thread> start_workers() {
    const Hold hold(mutex_);
    std::vector<std::thread> workers = start_threads(build_.threads, [this] { work(); });
    workers_left_ = std::ssize(workers);
    return workers;
  }

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
  int64_t workers_left_ = 0;
};

}  // namespace

std::vector<UnitProgress> run_build_work(const TokenBuild& build, BuildJournal* journal,
                                         const BuildTick& on_tick) {
  BuildWork work(build, journal);
  work.run([&] { on_tick([&] { return work.status(); }); });
  return work.finished();
}

}  // namespace tessera
