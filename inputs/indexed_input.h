// SPDX-License-Identifier: Apache-2.0
// Base class of inputs whose examples are numbered. It implements order as a pure function of
// (seed, position), host shares, epochs, the end of a finite set, and exact resume.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inputs/base_input.h"
#include "inputs/content_sample.h"
#include "inputs/shuffle.h"
#include "inputs/token_row.h"

namespace tessera {

// Options of the order in which examples become a stream of batches.
struct ExampleStream {
  std::string name;
  int64_t global_batch_size = 0;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  int64_t era_length = 1;    // In rows; for Shuffle::kEra.
  bool repeat = false;       // Repeat epochs; else one epoch, with the last batch padded.
  int64_t num_batches = -1;  // End after this many; -1: no limit.
};

// Returns the stream of a configuration with these fields.
template <typename HParams>
ExampleStream example_stream(const HParams& p) {
  constexpr int64_t kDefaultSeed = 1234;
  return {.name = p.name,
          .global_batch_size = p.global_batch_size.get(),
          .seq_len = p.seq_len.get(),
          .seed = static_cast<uint64_t>(p.seed.get_or(kDefaultSeed)),
          .num_batches = p.num_batches};
}

// A file of the data. Files added later come after it and do not change it.
struct DataPart {
  std::string name;
  std::string fingerprint;
  int64_t examples = 0;  // Per epoch.
};

class IndexedInput : public BaseInput {
 public:
  const std::string& name() const override { return stream_.name; }
  int64_t global_batch_size() const override { return stream_.global_batch_size; }
  void attach(const Infeed& infeed) override;
  Batch specification() const override;
  bool follows_sizes() const override { return true; }
  bool repeats() const override;
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override;
  InputState state() const override;
  void restore(const InputState& state) override;
  void recycle(Batch batch) override;

  const ExampleStream& stream() const { return stream_; }
  // Returns the examples per epoch; nullopt if unbounded.
  virtual std::optional<int64_t> num_examples() const = 0;
  // Returns the fingerprint of the tokenizer that made the ids; "" if other inputs cannot use ids.
  virtual std::string ids_fingerprint() const { return ""; }
  // Fills example `number` of the stream, counted over epochs; ignores num_batches.
  void fill_numbered(int64_t number, const TokenRow& row) const;
  // The first `examples` examples are not needed again, until a reset: an input that reads in order
  // frees them.
  virtual void release(int64_t /*examples*/) {}
  // Returns the cursors after `examples` examples, which were released.
  virtual std::map<std::string, std::string> cursors_at(int64_t examples) const;
  // Continues after `examples` examples. Error if the cursors do not agree with the current data.
  virtual void resume(const std::map<std::string, std::string>& cursors, int64_t examples);
  // Returns entries of a state that must be equal on all hosts, by kContentPrefix; one host: none.
  virtual std::map<std::string, std::string> contents() const { return contents_; }

 protected:
  explicit IndexedInput(const ExampleStream& stream);
  int64_t position() const { return position_; }
  const BatchSizes& sizes() const { return sizes_; }  // After `attach`.

  virtual void open(const Infeed&) {}
  // Fills every array of the row.
  virtual void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const = 0;
  // Returns the files of the data, in order, stored in states so that resuming on other data is an
  // error; empty to skip the check.
  virtual std::vector<DataPart> data_parts() const { return {}; }
  // Returns the entry of data_parts()[index] that hosts compare.
  virtual std::string content_of(size_t, ContentSample&) const { return ""; }

 private:
  int64_t host_rows(int64_t position) const;
  bool ended(int64_t position) const;
  void count_examples();
  Batch make_batch(int64_t position);
  void make_row(int64_t number, const TokenRow& row) const;

  ExampleStream stream_;
  BatchSizes sizes_;
  std::vector<DataPart> parts_;
  std::optional<RowOrder> order_;  // Set if examples can be counted.
  std::map<std::string, std::string> contents_;
  bool attached_ = false;
  bool has_given_ = false;  // A batch; before it, states have the contents.
  int64_t position_ = 0;
  std::vector<Batch> free_buffers_;  // Recycled batches.
};

}  // namespace tessera
