// SPDX-License-Identifier: Apache-2.0
// Position embeddings. Absolute ones are added to the token embeddings: fixed sinusoids or a
// learned table. The rotary one is applied to queries and keys, inside attention.
#pragma once

#include <optional>
#include <vector>

#include "core/hparams/template.h"
#include "core/ops/rotary.h"
#include "layers/layer.h"

namespace tessera {

// Positions i32["seq"] or ["batch seq"], counted from 0 and less than the length of the sequence
// (in decoding: of the cache) -> the same axes and "embed".
class BasePositionEmbedding : public LayerOf<Tensor(Tensor positions)> {
 protected:
  using LayerOf::LayerOf;
};

// sin and cos of position/timescale, timescales in geometric progression; the first half of `embed`
// holds the sines (Vaswani et al., 2017, in the arrangement of Pax and tensor2tensor).
class PositionalEmbedding final : public BasePositionEmbedding {
 public:
  struct HParams {
    using Instance = PositionalEmbedding;
    Required<int64_t> model_dims;  // Even.
    double min_timescale = 1.0;
    double max_timescale = 10000.0;
    Field<DTypePolicy> dtypes;
    FIELDS(About(model_dims, kSize), About(min_timescale, kPositive),
           About(max_timescale, kPositive), dtypes)
  };
  explicit PositionalEmbedding(const HParams& p);

 private:
  Tensor fprop(Tensor positions) const override;
  Tensor sinusoids(Tensor positions) const;

  HParams p_;
};

// Positions are below the length of a row: only these rows of the table are sent to other devices.
class TrainablePositionalEmbedding final : public BasePositionEmbedding {
 public:
  struct HParams {
    using Instance = TrainablePositionalEmbedding;
    Required<int64_t> max_seq_length;  // Rows of the table.
    Required<int64_t> model_dims;
    int64_t first_row = 0;  // The row of position 0; those before are not used (RoBERTa).
    LayerHParams layer;
    FIELDS(About(max_seq_length, kSize), About(model_dims, kSize), About(first_row, kNotNegative),
           layer)
  };
  explicit TrainablePositionalEmbedding(const HParams& p);

 private:
  Tensor fprop(Tensor positions) const override;

  HParams p_;
  Weight table_;
};

// Rescaling of rotary frequencies for longer contexts, as in Llama 3 (core/ops/rotary.h).
struct RotaryStretchHParams {
  static constexpr std::string_view kName = "RotaryStretch";
  double factor = 1.0;     // 1: no rescaling.
  double low = 1.0;        // Hugging Face: low_freq_factor.
  double high = 4.0;       // Hugging Face: high_freq_factor.
  double length = 8192.0;  // Hugging Face: original_max_position_embeddings.
  FIELDS(About(factor, kPositive), About(low, kPositive), About(high, kPositive),
         About(length, kPositive))
};

// YaRN (Peng et al., 2023, arXiv 2309.00071, section 3.2): pairs that turn less than `slow` times
// in `length` positions have their angle divided by `factor`, pairs that turn more than `fast`
// times keep it, and in between the share changes linearly with the pair's number.
struct RotaryYarnHParams {
  static constexpr std::string_view kName = "RotaryYarn";
  double factor = 1.0;
  double fast = 32.0;       // Hugging Face: beta_fast.
  double slow = 1.0;        // Hugging Face: beta_slow.
  double length = 4096.0;   // Hugging Face: original_max_position_embeddings.
  bool whole_pairs = true;  // The share changes between whole numbers. Hugging Face: truncate.
  FIELDS(About(factor, kPositive), About(fast, kPositive), About(slow, kPositive),
         About(length, kPositive), whole_pairs)
};

// LongRoPE (Ding et al., 2024, arXiv 2402.13753): the frequency of pair i is divided by
// short_divisors[i] in sequences of up to `length` tokens, and by long_divisors[i] in longer ones.
struct RotaryLongHParams {
  static constexpr std::string_view kName = "RotaryLong";
  std::vector<double> short_divisors, long_divisors;  // Hugging Face: short_factor, long_factor.
  double length = 4096.0;  // Hugging Face: original_max_position_embeddings.
  FIELDS(About(short_divisors, kPositive), About(long_divisors, kPositive),
         About(length, kPositive))
};

// The rotation's base grows with the sequence, from max_timescale up to `length` tokens
// (dynamic NTK scaling; Hugging Face: rope_type "dynamic"): pair i of n turns by
// g^(-i/(n-1)) times its angle, with g = factor·tokens/length - (factor - 1).
struct RotaryDynamicHParams {
  static constexpr std::string_view kName = "RotaryDynamic";
  double factor = 1.0;
  double length = 2048.0;  // Hugging Face: max_position_embeddings.
  FIELDS(About(factor, kPositive), About(length, kPositive))
};

// Rotary position embedding (Su et al., 2021), without weights: x["batch seq heads head_dim"],
// positions i32["batch seq"] or ["seq"] -> the type of x.
class RotaryPositionEmbedding final : public LayerOf<Tensor(Tensor x, Tensor positions)> {
 public:
  struct HParams {
    using Instance = RotaryPositionEmbedding;
    double min_timescale = 1.0;
    double max_timescale = 10000.0;
    bool interleaved = false;  // Pairs (2i, 2i+1) as in the paper; else (i, i + head_dim/2).
    std::optional<RotaryStretchHParams> stretch;
    std::optional<RotaryYarnHParams> yarn;            // In place of stretch,
    std::optional<RotaryLongHParams> long_sequences;  // or of both,
    std::optional<RotaryDynamicHParams> dynamic;      // or of all three; with interleaved=false.
    // The share of head_dim that is rotated, from its first element. Hugging Face:
    // partial_rotary_factor.
    double rotary_share = 1.0;
    double output_scale = 1.0;     // Multiplies what is rotated (YaRN: its attention factor).
    Field<int64_t> max_positions;  // Written to config.json on export; not used otherwise.
    FIELDS(About(min_timescale, kPositive), About(max_timescale, kPositive), interleaved, stretch,
           long_sequences, yarn, dynamic, About(rotary_share, {.above = 0, .max = 1}),
           About(output_scale, kPositive), About(max_positions, kSize))
  };
  explicit RotaryPositionEmbedding(const HParams& p);

 private:
  Tensor fprop(Tensor x, Tensor positions) const override;
  Tensor rotated(const Tensor& x, const Tensor& positions) const;
  Tensor rotated_by(const Tensor& x, const Tensor& positions, const RotaryStretch& stretch) const;
  Tensor rotated_for_length(const Tensor& x, const Tensor& positions) const;
  Tensor rotated_dynamically(const Tensor& x, const Tensor& positions) const;

  HParams p_;
};

extern template class HolderOf<BasePositionEmbedding, PositionalEmbedding::HParams>;
extern template class HolderOf<BasePositionEmbedding, TrainablePositionalEmbedding::HParams>;
extern template class HolderOf<RotaryPositionEmbedding, RotaryPositionEmbedding::HParams>;

}  // namespace tessera
