// SPDX-License-Identifier: Apache-2.0
// Builds a token file from inputs, on several threads, with memory bounded by threads and the
// longest document. The bytes of the file depend on inputs and options alone, not on threads nor on
// how often the work was killed and gone on with.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "inputs/building/build_inputs.h"
#include "inputs/building/build_ledger.h"
#include "inputs/building/build_progress.h"
#include "inputs/building/document_batch.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/tokenizer.h"

namespace tessera {

struct TokenBuild {
  BuildInputs from;
  std::filesystem::path output;
  const Tokenizer* tokenizer = nullptr;  // May be null if all inputs are tokens.
  TokenizerIdentity identity;            // What the file says of it.
  std::optional<int32_t> document_end;   // Put behind each text.
  std::optional<int32_t> end_of_tokens;  // Ends the documents of inputs that are tokens.
  ReadOptions read;
  double validation_fraction = 0.1;
  int64_t max_tokens = -1;  // Of each split; -1: no limit.
  int compression = 0;      // Deflate level 1-9; 0 for none.
  int threads = 1;

  // Work is done, and taken up after a kill, in such portions; tests make them small.
  int64_t unit_bytes = int64_t{64} << 20;         // Inputs are put together up to so many.
  int64_t batch_bytes = int64_t{1} << 20;         // Of text, that a thread takes at a time.
  int64_t checkpoint_bytes = int64_t{256} << 20;  // Of text, between two lines of the ledger.
  // Set by a signal: the build stops with an Error, and can be gone on with.
  const std::atomic<bool>* stop = nullptr;
};

struct TokenBuilt {
  std::array<int64_t, kNumSplits> tokens{};
  std::array<int64_t, kNumSplits> documents{};
  LeftOut left_out;
  std::string description;  // Of the inputs and of what was held out.
};

TokenBuilt build_tokens(const TokenBuild& build, BuildProgress& progress);

}  // namespace tessera
