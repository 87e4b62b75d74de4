// SPDX-License-Identifier: Apache-2.0
// Builds a token file.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_progress.h"
#include "inputs/flat_tokens/input_reader.h"

namespace tessera {

struct TokenBuilt {
  std::array<int64_t, kNumSplits> tokens{};
  std::array<int64_t, kNumSplits> documents{};
  SkippedRecords skipped;
  std::string description;  // Of the inputs and the validation split.
};

// Builds a token file on several threads; memory is bounded by the threads and the longest
// document. The bytes of the file depend only on inputs and options, not on threads or
// interruptions.
TokenBuilt build_tokens(const TokenBuild& build, BuildProgress& progress);

}  // namespace tessera
