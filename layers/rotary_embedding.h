// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of queries and keys (Su et al., 2021); no weights.
#pragma once

#include <optional>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

// RotaryStretch, as configured.
struct RotaryStretchHParams {
  static constexpr std::string_view kName = "RotaryStretch";
  double factor = 1.0;     // 1: none.
  double low = 1.0;        // Hugging Face: low_freq_factor.
  double high = 4.0;       // high_freq_factor.
  double length = 8192.0;  // original_max_position_embeddings.
  FIELDS(factor, low, high, length)
};

class RotaryPositionEmbedding final : public Layer {
 public:
  struct HParams {
    using Instance = RotaryPositionEmbedding;
    static constexpr std::string_view kName = "RotaryPositionEmbedding";
    double min_timescale = 1.0;
    double max_timescale = 10000.0;
    bool interleaved = false;  // Pairs (2i, 2i+1) as in the paper; else (i, i + head_dim/2).
    std::optional<RotaryStretchHParams> stretch;
    Field<int64_t> max_positions;  // That the model is said to be good for, when it is exported.
    FIELDS(min_timescale, max_timescale, interleaved, stretch, max_positions)
  };
  explicit RotaryPositionEmbedding(const HParams& p);

  // x["batch seq heads head_dim"], positions i32["batch seq"] or ["seq"].
  Tensor fprop(Tensor x, Tensor positions) const;

 private:
  HParams p_;
};

extern template class HolderOf<RotaryPositionEmbedding, RotaryPositionEmbedding::HParams>;

}  // namespace tessera
