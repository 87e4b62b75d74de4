// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., 2021).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

enum class RotaryStyle {
  kHalf,        // Pairs (i, i + d/2): GPT-NeoX, Llama in Hugging Face form, Pax, seqax.
  kInterleaved  // Pairs (2i, 2i + 1): the paper, Llama's own release.
};

// Changes of frequencies for longer sequences.
//
// RoPE scaling of Llama 3.1 for longer sequences: pairs that rotate less than `low` times in
// `length` positions have their angle divided by `factor`, pairs that rotate more than `high` times
// keep it, and in between the two are interpolated. YaRN: the pair's number decides instead.
struct RotaryStretch {
  double factor = 1.0;  // 1: none.
  double low = 1.0;
  double high = 4.0;
  double length = 8192.0;
  double index_step = 0.0;  // Between low and high is turns + index_step·(number of the pair).
  // What each pair's frequency is then divided by (LongRoPE); empty: nothing.
  std::vector<double> divisors;
};

// Rotates x["… axis"] by positions i32[…] (whose axes are among x's). Angle of pair i of d/2:
// position / min_timescale·(max_timescale/min_timescale)^(2i/d), stretched. Computed in f32.
Tensor rotary(Operand x, Operand positions, std::string_view axis, double max_timescale = 10000.0,
              double min_timescale = 1.0, RotaryStyle style = RotaryStyle::kHalf,
              const RotaryStretch& stretch = {});

extern const Op kRotaryOp;

struct RotaryAttributes {
  explicit RotaryAttributes(const Attributes& attributes);
  std::string axis;
  double min_timescale, max_timescale;
  bool interleaved, inverse;
  std::optional<RotaryStretch> stretch;
  std::vector<double> divisors;  // Empty: none.
};

}  // namespace tessera
