// SPDX-License-Identifier: Apache-2.0
// What every input pipeline is: a resumable stream of batches. A batch is this host's share of the
// global batch; its order is a pure function of (seed, position) and of nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/shard.h"
#include "inputs/tokenizer.h"

namespace tessera {

// One named array of a batch on the host, row-major: ids, labels, weights, paddings, segment_ids,
// segment_pos ["batch seq"]; of each row (["batch"]) eval_sample_weights, label_bytes (bytes of
// text of the labels that weigh something; 0 if the ids are not known to be text) and source (which
// of BaseInput::sources it is from). Programs take what their graph uses of a batch.
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

// Where a stream is: enough to go on exactly, on another number of hosts too. Each host's holds
// what it knows of its own rows; a checkpoint holds the union of all hosts'
// (tasks/train/loop_state.h), and every host is restored from that.
struct InputState {
  int64_t position = 0;  // Global batches given out so far.
  std::map<std::string, std::string> extra;
};

// What the trainer tells an input before its first use; never set by users.
struct Infeed {
  int64_t infeed_host_index = 0;
  int64_t num_infeed_hosts = 1;
  // The rows of the global batch that this host's devices hold, ascending; empty: an equal share,
  // the index-th of num_infeed_hosts. Hosts may read the same rows, and ranges may lie apart.
  std::vector<RowRange> rows;
  std::filesystem::path run_directory;  // Where an input may keep a frozen corpus; may be empty.
  bool run_begun = true;  // Whether a step was taken there: what is frozen then stays.
};

class BaseInput {
 public:
  virtual ~BaseInput() = default;
  virtual const std::string& name() const = 0;  // Of the dataset, for eval lines.
  virtual int64_t global_batch_size() const = 0;
  // Opens what the input reads; called once, before anything below but `specification`.
  virtual void attach(const Infeed& infeed) = 0;
  virtual int64_t vocab_size() const = 0;  // No id of a batch reaches it.
  // Whether get_next gives batches for ever; asked once attached.
  virtual bool repeats() const { return false; }
  // This host's rows, bytes empty; before `attach`, the whole batch's.
  virtual Batch specification() const = 0;
  // nullopt at the end of a finite set. A host may end before others do whose rows hold more
  // (streaming text); whoever reads batches agrees with all hosts, and gives those that have ended
  // `padding_batch` until none has any.
  virtual std::optional<Batch> get_next() = 0;
  virtual std::optional<Batch> peek() = 0;  // The next one, without moving on.
  virtual void reset() = 0;
  virtual InputState state() const = 0;
  virtual void restore(const InputState& state) = 0;
  // Takes back a batch that it gave out, so that the next one need not find memory anew.
  virtual void recycle(Batch) {}

  // Of the ids, once attached; null if they are not text's.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  // What rows come from, by name; a batch's `source` counts in it.
  virtual std::vector<std::string> sources() const { return {name()}; }
  // Text of ids, for samples and reports: without a tokenizer, the numbers.
  std::string ids_to_text(const std::vector<int32_t>& ids) const;
  // Of a prompt, in which names of special tokens stand for them. Error without a tokenizer.
  std::vector<int32_t> text_to_ids(const std::string& text) const;
};

// Whether two batches hold the same arrays: names, types and shapes.
bool same_shapes(const Batch& a, const Batch& b);

// The specification of the global batch: what is traced, whatever rows this host reads.
Batch global_specification(const BaseInput& input);

// Positions of a row of it; 0 if its examples are no rows of tokens.
int64_t sequence_length(const BaseInput& input);

// The rows of an input's global batch that a host reads.
std::vector<RowRange> rows_of_host(const BaseInput& input, const Infeed& infeed);

// A batch in which nothing weighs anything, of an input's specification.
Batch padding_batch(const Batch& specification);

// Documents that were passed over so far because they could not be read (BrokenDocuments::kSkip),
// as a state tells it: each reader counts under keys of its own, which unite over hosts.
struct BrokenDocumentCount {
  int64_t count = 0;
  std::string first;  // What was wrong with one of the first: "c4.jsonl.gz:17: …".
};
inline constexpr std::string_view kBrokenDocumentsPrefix = "broken/";  // Then any name.
std::string broken_documents_entry(const BrokenDocumentCount& count);
BrokenDocumentCount parse_broken_documents(const std::string& entry);  // 0 of what is none.
BrokenDocumentCount broken_documents(const InputState& state);

}  // namespace tessera
