// SPDX-License-Identifier: Apache-2.0
// Prompts through a decoder over the model of prefix_program.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/decode/decoder.h"
#include "tests/tasks/decode/prefix_program.h"

namespace tessera {

using Prompts = std::vector<std::vector<int32_t>>;

std::vector<std::vector<DecodedSample>> decode_with(PrefixProgram& program, const DecodeHParams& p,
                                                    const Prompts& prompts);
std::vector<std::vector<DecodedSample>> decode_with(const PrefixProgram::Sizes& sizes,
                                                    const DecodeHParams& p, const Prompts& prompts);
// Of lengths from 1 on, some longer than a chunk; ids below the vocabulary.
Prompts some_prompts(int64_t count, int64_t vocab_size = 6);

// log softmax
std::vector<double> log_probabilities(const std::vector<float>& logits);

}  // namespace tessera
