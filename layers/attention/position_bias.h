// SPDX-License-Identifier: Apache-2.0
// Biases of attention scores by the distance between query and key: learned ones (T5) and linear
// ones (ALiBi). They are an alternative to position embeddings.
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

// Distances i32["… seq key_seq"], key position minus query position, and the axis heads of the
// queries -> f32["… seq key_seq heads"], which is added to the scores.
class BasePositionBias : public LayerOf<Tensor(Tensor distance, const Axis& heads)> {
 protected:
  using LayerOf::LayerOf;
};

// A learned bias for each head and range of distances ("bucket"): the nearest distances have one
// each, farther ones share ranges that grow to max_distance, and all beyond have the last (T5;
// Raffel et al., 2020, section 2.1).
class RelativePositionBias final : public BasePositionBias {
 public:
  struct HParams {
    using Instance = RelativePositionBias;
    Required<int64_t> num_heads;
    int64_t num_buckets = 32;
    int64_t max_distance = 128;
    bool bidirectional = true;  // Half of the ranges are for later keys; false: those share one.
    LayerHParams layer;
    FIELDS(About(num_heads, kSize), About(num_buckets, {.min = 4, .max = 1 << 16}),
           About(max_distance, kSize), bidirectional, layer)
  };
  explicit RelativePositionBias(const HParams& p);

 private:
  Tensor fprop(Tensor distance, const Axis& heads) const override;
  Tensor bucket_of(const Tensor& distance) const;

  HParams p_;
  Weight table_;
};

// -slope·|distance|, without weights. The slopes of n heads are 2^(-m/n), 2^(-2m/n), …, 2^-m, with
// m = max_exponent; of a number that is no power of two, those of the next lower power n and then
// every second one of 2n (ALiBi; Press et al., 2022, arXiv 2108.12409, and their code).
class AlibiBias final : public BasePositionBias {
 public:
  struct HParams {
    using Instance = AlibiBias;
    double max_exponent = 8.0;
    FIELDS(About(max_exponent, kPositive))
  };
  explicit AlibiBias(const HParams& p) : max_exponent_(p.max_exponent) {}

 private:
  Tensor fprop(Tensor distance, const Axis& heads) const override;

  double max_exponent_;
};

extern template class HolderOf<BasePositionBias, RelativePositionBias::HParams>;
extern template class HolderOf<BasePositionBias, AlibiBias::HParams>;

}  // namespace tessera
