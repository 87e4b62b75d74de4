// SPDX-License-Identifier: Apache-2.0
// The interface of input pipelines: a resumable stream of batches. A batch holds this host's rows
// of the global batch. Batch contents are a pure function of (seed, position).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/type.h"
#include "inputs/readers/document_reader.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// A named host array of a batch, row-major. Token batches have ids, labels, weights, paddings,
// segment_ids and segment_pos ["batch seq"], and per row ["batch"] eval_sample_weights, label_bytes
// (bytes of text of the labels with non-zero weight; 0 if the ids are not known to be text) and
// source (an index into BaseInput::sources). Programs read the arrays their graph uses.
struct HostArray {
  DType dtype = DType::kI32;
  std::vector<std::string> axes;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};
using Batch = std::map<std::string, HostArray>;

// The state of a stream, from which it resumes exactly, on any number of hosts. Each host's state
// has the cursors of its own rows; a checkpoint stores the merged states of all hosts, and every
// host restores from the merged state.
struct InputState {
  int64_t position = 0;  // Global batches returned so far.
  // Per-row positions, counters and data fingerprints by name.
  std::map<std::string, std::string> cursors;
};

// Returns the integer of a state; nullopt without one.
std::optional<int64_t> saved_integer(const std::map<std::string, std::string>& cursors,
                                     const std::string& key, int64_t least);

// The size of the batches from number `first_batch` on.
struct BatchSize {
  int64_t first_batch = 0;
  int64_t global_batch_size = 0;
  std::vector<RowRange> rows;  // As Infeed::rows.
};

// Set by the trainer before first use; not configurable.
struct Infeed {
  int64_t infeed_host_index = 0;
  int64_t num_infeed_hosts = 1;
  // The global-batch rows that this host's devices hold, ascending. Empty: share infeed_host_index
  // of num_infeed_hosts equal shares. Rows may be shared by hosts and need not be contiguous.
  std::vector<RowRange> rows;
  // Sizes that change during a run, ascending from batch 0; only for an input that follows_sizes().
  // No example is repeated or left out. Empty: all batches have the input's own size.
  std::vector<BatchSize> sizes;
  std::filesystem::path run_directory;  // Where an input may store a corpus snapshot; may be empty.
  bool run_begun = true;                // Whether a step was taken: a snapshot is then kept.
};

class BaseInput {
 public:
  virtual ~BaseInput() = default;
  virtual const std::string& name() const = 0;  // The dataset name in eval metrics.
  virtual int64_t global_batch_size() const = 0;
  // Opens the data. Called once, before all other calls but `specification`.
  virtual void attach(const Infeed& infeed) = 0;
  virtual int64_t vocab_size() const = 0;  // Ids are below it.
  // Whether batches have the sizes of Infeed::sizes.
  virtual bool follows_sizes() const { return false; }
  // Whether get_next never ends. Call after `attach`.
  virtual bool repeats() const { return false; }
  // Returns the arrays of this host's rows of batch 0, without data; before `attach`, of a whole
  // batch.
  virtual Batch specification() const = 0;
  // Returns nullopt at the end of a finite set. With streamed text, a host may end before others:
  // callers agree across hosts, and use `padding_batch` on hosts that have ended until all have.
  virtual std::optional<Batch> get_next() = 0;
  virtual std::optional<Batch> peek() = 0;  // The next batch, without advancing.
  virtual void reset() = 0;
  virtual InputState state() const = 0;
  virtual void restore(const InputState& state) = 0;
  // Returns a batch for reuse of its memory; its rows may have been cut (cut_rows).
  virtual void recycle(Batch) {}  // NOLINT(performance-unnecessary-value-param): overrides keep it.

  // Valid after `attach`; null if the ids are not text.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  // Whether the ids of each document begin with the tokenizer's start_id (labels=shift_right), so
  // that a prompt must too. Valid before `attach`.
  virtual bool documents_begin_with_start_id() const { return false; }
  // Returns notes for users about the data, such as files that were left out. Valid after `attach`.
  virtual std::vector<std::string> remarks() const { return {}; }
  // Names of the sources of rows, indexed by the batch array `source`.
  virtual std::vector<std::string> sources() const { return {name()}; }
};

// Whether two batches have equal array names, types and shapes.
bool same_shapes(const Batch& a, const Batch& b);

// Returns the specification of the global batch, which is traced.
Batch global_specification(const BaseInput& input);

// The sequence length; 0 if rows are not sequences of tokens.
int64_t sequence_length(const BaseInput& input);

// The global-batch rows that a host reads.
std::vector<RowRange> rows_of_host(const BaseInput& input, const Infeed& infeed);

// Which examples of the stream a batch holds: a function of the batch's number, so that a run whose
// batches change their size resumes exactly.
class BatchSizes {
 public:
  BatchSizes() = default;
  // The sizes of the infeed, or the input's own.
  BatchSizes(const BaseInput& input, const Infeed& infeed);

  int64_t examples_before(int64_t batch) const;
  // The numbers in the stream of this host's rows of a batch.
  std::vector<int64_t> host_examples(int64_t batch) const;
  // The remainders of the numbers of all examples that this host reads, divided by `lanes`.
  std::set<int64_t> host_lanes(int64_t lanes) const;

  // Writes into the state of an input how many examples it has read.
  void note_examples(InputState* state) const;
  // Continues with the first example after those that the state counts, also if the batches had
  // another size. Returns the number of the next batch, at least 1 after an example. Error if the
  // infeed has sizes by which the batches of the state would have other examples.
  int64_t resume(const std::string& input, const InputState& state);
  void restart() { shift_ = 0; }  // From example 0.

 private:
  bool are_given_ = false;  // Whether the infeed has sizes.
  std::vector<BatchSize> sizes_;
  int64_t own_size_ = 0;  // The input's global_batch_size.
  int64_t shift_ = 0;     // Added to the numbers of examples, after batches of another size.
};

// A batch of padding with this specification.
Batch padding_batch(const Batch& specification);

// Entries of a state about the contents of the data: equal on all hosts, but not compared when a
// run resumes. Inputs of several hosts have them before their first batch.
inline constexpr std::string_view kContentPrefix = "content/";  // Followed by a file's name.

// Counts of corrupt records in a state. Each reader has its own key, so counts of all hosts merge.
inline constexpr std::string_view kCorruptRecordsPrefix = "broken/";  // Followed by any name.
std::string corrupt_records_entry(const CorruptRecordCount& count);
CorruptRecordCount parse_corrupt_records(const std::string& entry);  // 0 if malformed.
CorruptRecordCount corrupt_records(const InputState& state);         // Sum of all readers.

// Cuts each row of ["batch seq"] into rows of `seq_len`, which divides its length. The pieces of a
// row follow each other. In each, segment_ids count from 1, and segment_pos from 0 where the piece
// begins within a document. Arrays of ["batch"] have the row's value in each piece, but label_bytes
// are 0: not known.
void cut_rows(Batch& batch, int64_t seq_len);

}  // namespace tessera
