// SPDX-License-Identifier: Apache-2.0
// The closing sample: ancestral sampling with a temperature, one forward pass of the whole window a
// token. A look at what was learnt, not a decoder (it keeps no keys and values).
#pragma once

#include <string>

#include "inputs/base_input.h"
#include "tasks/programs.h"
#include "tasks/train_hparams.h"

namespace tessera {

// The prompt and `p.length` tokens after it. Reserved id 0 is never drawn.
std::string sample_text(LogitsProgram& program, const BaseInput& input, const ClosingSample& p);

// An index drawn with probability softmax(logits / temperature), by `uniform` in [0, 1); the first
// is never drawn. Temperature 0 takes the largest.
int32_t draw_token(const std::vector<float>& logits, double temperature, double uniform);

}  // namespace tessera
