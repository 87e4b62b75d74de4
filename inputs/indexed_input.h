// SPDX-License-Identifier: Apache-2.0
// An input whose examples can be had by number. Everything else follows from that: order as a pure
// function of (seed, position), a host's share, epochs, the end of a finite set, exact resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inputs/base_input.h"
#include "inputs/token_row.h"

namespace tessera {

// How examples become a stream of batches.
struct Stream {
  std::string name;
  int64_t global_batch_size = 0;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  bool shuffle = false;      // A new order each epoch.
  bool repeat = false;       // Epoch after epoch; else one, its last batch filled with padding.
  int64_t num_batches = -1;  // The stream's end, where it has not ended before; -1: no limit.
};

class IndexedInput : public BaseInput {
 public:
  const std::string& name() const override { return stream_.name; }
  int64_t global_batch_size() const override { return stream_.global_batch_size; }
  void attach(const Infeed& infeed) override;
  Batch specification() const override;
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override { position_ = 0; }
  InputState state() const override;
  void restore(const InputState& state) override;
  void recycle(Batch batch) override;

 protected:
  explicit IndexedInput(const Stream& stream);
  const Stream& stream() const { return stream_; }

  virtual void open(const Infeed&) {}
  // Of one epoch; nullopt if every index has an example of its own.
  virtual std::optional<int64_t> num_examples() const = 0;
  // Fills every array of the row, of which nothing is known before.
  virtual void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const = 0;
  // Names the data, so that a run is not resumed on other data unawares; "" to leave it out.
  virtual std::string data_fingerprint() const { return ""; }

 private:
  int64_t host_rows() const;
  bool ended(int64_t position) const;
  Batch make_batch(int64_t position);
  void make_row(int64_t number, const TokenRow& row) const;

  Stream stream_;
  std::vector<RowRange> rows_;  // This host's, of the global batch.
  bool attached_ = false;
  int64_t position_ = 0;
  std::vector<Batch> spare_;  // Given back, to be filled again.
};

}  // namespace tessera
