// SPDX-License-Identifier: Apache-2.0
// A unit of the work of building: some inputs in a row, read batch by batch. It can go on from the
// end of any batch.
#pragma once

#include <memory>
#include <span>

#include "inputs/building/input_reader.h"

namespace tessera {

class UnitSource {
 public:
  UnitSource(std::span<const BuildInput> inputs, InputReaderOptions options, int64_t batch_bytes);

  // Fills an empty batch. Documents of splits that are not wanted are dropped. False at the end.
  bool next(const SplitSet& wanted, DocumentBatch* batch);
  // To the end of a batch.
  void seek(const UnitPosition& position, const LeftOut& left_out);

 private:
  void open();
  void close();

  std::span<const BuildInput> inputs_;
  InputReaderOptions options_;
  int64_t batch_bytes_;
  int64_t at_ = 0;                       // The input.
  ShardPosition from_;                   // Where it is to be begun with.
  int64_t bytes_before_ = 0;             // On disk, of inputs that are done with.
  LeftOut left_out_before_;              // Of what came before the reader was opened.
  std::unique_ptr<InputReader> reader_;  // Of the input, once it is opened.
};

}  // namespace tessera
