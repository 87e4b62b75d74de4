// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., 2021).
#pragma once

#include <string_view>

#include "core/graph/tensor.h"

namespace tessera {

enum class RotaryStyle {
  kHalf,        // Pairs (i, i + d/2): GPT-NeoX, Llama in Hugging Face form, Pax, seqax.
  kInterleaved  // Pairs (2i, 2i + 1): the paper, Llama's own release.
};

// Rotates x["… axis"] by positions i32[…] (whose axes are among x's). Angle of pair i of d/2:
// position / min_timescale·(max_timescale/min_timescale)^(2i/d). Computed in f32.
Tensor rotary(Operand x, Operand positions, std::string_view axis, double max_timescale = 10000.0,
              double min_timescale = 1.0, RotaryStyle style = RotaryStyle::kHalf);

}  // namespace tessera
