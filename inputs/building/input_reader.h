// SPDX-License-Identifier: Apache-2.0
// One input of a token file, read document by document and dealt out to the splits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "inputs/building/build_inputs.h"
#include "inputs/building/document_batch.h"
#include "inputs/documents/byte_source.h"

namespace tessera {

struct InputReaderOptions {
  ReadOptions read;
  double validation_fraction = 0.1;
  int64_t vocab_size = 0;
  std::optional<int32_t> end_of_tokens;  // Ends the documents of inputs that are tokens.
};

class InputReader {
 public:
  virtual ~InputReader() = default;
  // Adds a document, or some tokens, unless it is of a split that is not wanted; false at the end.
  virtual bool read(const SplitSet& wanted, DocumentBatch* batch) = 0;
  virtual ShardPosition position() const = 0;
  virtual void seek(const ShardPosition& position) = 0;
  virtual LeftOut left_out() const = 0;
  virtual int64_t bytes_read() const = 0;
};

std::unique_ptr<InputReader> open_input(const BuildInput& input, const InputReaderOptions& options);
// Tokens of nanoGPT's and llm.c's files, from any source of `input.bytes` bytes.
std::unique_ptr<InputReader> read_token_bin(std::unique_ptr<ByteSource> source,
                                            const BuildInput& input,
                                            const InputReaderOptions& options);

}  // namespace tessera
