// SPDX-License-Identifier: Apache-2.0
// Decodes prompts with the test model of prefix_program.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/run/decode/decoder.h"
#include "tests/tasks/run/decode/prefix_program.h"

namespace tessera {

using Prompts = std::vector<std::vector<int32_t>>;

std::vector<std::vector<DecodedSample>> decode_with(PrefixProgram& program, const DecodeHParams& p,
                                                    const Prompts& prompts);
std::vector<std::vector<DecodedSample>> decode_with(const PrefixProgram::Sizes& sizes,
                                                    const DecodeHParams& p, const Prompts& prompts);
// Prompts of lengths from 1 up, some longer than a prefill chunk, with ids below vocab_size.
Prompts some_prompts(int64_t count, int64_t vocab_size = 6);

// log softmax
std::vector<double> log_probabilities(const std::vector<float>& logits);

}  // namespace tessera
