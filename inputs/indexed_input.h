// SPDX-License-Identifier: Apache-2.0
// An input whose examples can be had by number. Everything else follows from that: order as a pure
// function of (seed, position), a host's share, epochs, the end of a finite set, exact resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inputs/base_input.h"
#include "inputs/row_order.h"
#include "inputs/token_row.h"

namespace tessera {

// How examples become a stream of batches.
struct Stream {
  std::string name;
  int64_t global_batch_size = 0;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  int64_t era_length = 1;    // Rows, of Shuffle::kEra.
  bool repeat = false;       // Epoch after epoch; else one, its last batch filled with padding.
  int64_t num_batches = -1;  // The stream's end, where it has not ended before; -1: no limit.
};

// A part of the data that stays what it is when others are added behind it: a file.
struct DataPart {
  std::string name;
  std::string fingerprint;
  int64_t examples = 0;  // Of an epoch.
};

class IndexedInput : public BaseInput {
 public:
  const std::string& name() const override { return stream_.name; }
  int64_t global_batch_size() const override { return stream_.global_batch_size; }
  void attach(const Infeed& infeed) override;
  Batch specification() const override;
  bool repeats() const override;
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override { position_ = 0; }
  InputState state() const override;
  void restore(const InputState& state) override;
  void recycle(Batch batch) override;

  const Stream& stream() const { return stream_; }
  // Of one epoch; nullopt if every index has an example of its own.
  virtual std::optional<int64_t> num_examples() const = 0;
  // Tells ids of one meaning from those of another: the fingerprint of what made them. "" if they
  // mean nothing beyond the input.
  virtual std::string ids_fingerprint() const { return ""; }
  // The stream's example `number`, epoch after epoch, whether the stream ends before or not.
  void fill_numbered(int64_t number, const TokenRow& row) const;
  // What a state keeps besides the position after `examples` examples were given out; and whether
  // what an earlier one kept then agrees with what the input reads now: Error if it does not.
  virtual std::map<std::string, std::string> kept(int64_t examples) const;
  virtual void check_kept(const std::map<std::string, std::string>& kept, int64_t examples) const;

 protected:
  explicit IndexedInput(const Stream& stream);
  int64_t position() const { return position_; }

  virtual void open(const Infeed&) {}
  // Fills every array of the row, of which nothing is known before.
  virtual void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const = 0;
  // The data, so that a run is not resumed on other data unawares, in order; empty to leave it out.
  virtual std::vector<DataPart> data_parts() const { return {}; }

 private:
  int64_t host_rows() const;
  bool ended(int64_t position) const;
  Batch make_batch(int64_t position);
  void make_row(int64_t number, const TokenRow& row) const;

  Stream stream_;
  std::vector<RowRange> rows_;  // This host's, of the global batch.
  std::vector<DataPart> parts_;
  std::optional<RowOrder> order_;  // Of the examples of an epoch, if they can be counted.
  bool attached_ = false;
  int64_t position_ = 0;
  std::vector<Batch> spare_;  // Given back, to be filled again.
};

}  // namespace tessera
