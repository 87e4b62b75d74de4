// SPDX-License-Identifier: Apache-2.0
// Normalisation over one axis, with learned parameters: LayerNorm (Ba et al., 2016) and RMSNorm
// (Zhang and Sennrich, 2019).
#pragma once

#include <string>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class LayerNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = LayerNorm;
    Required<int64_t> model_dims;  // Size of `axis`; the enclosing layer's unless set.
    std::string axis = "embed";
    double epsilon = 1e-6;
    bool use_scale = true;
    bool use_bias = true;
    bool direct_scale = true;  // false: stored as scale - 1, initially 0 (Pax's default).
    FixedInitLayerHParams layer;
    FIELDS(About(model_dims, kSize), axis, About(epsilon, kNotNegative), use_scale, use_bias,
           direct_scale, layer)
  };
  explicit LayerNorm(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
  Weight scale_, bias_;
};

class RmsNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = RmsNorm;
    Required<int64_t> model_dims;  // Size of `axis`; the enclosing layer's unless set.
    std::string axis = "embed";
    double epsilon = 1e-6;
    bool use_scale = true;
    bool direct_scale = true;  // false: stored as scale - 1, initially 0 (Pax's default).
    FixedInitLayerHParams layer;
    FIELDS(About(model_dims, kSize), axis, About(epsilon, kNotNegative), use_scale, direct_scale,
           layer)
  };
  explicit RmsNorm(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
  Weight scale_;
};

// RMSNorm of all heads of a token together (OLMo 2, 2025, arXiv 2501.00656, section 3.2), for
// queries or keys x["… heads head_dim"].
class HeadsRmsNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = HeadsRmsNorm;
    Required<int64_t> num_heads;  // Size of `axis`.
    Required<int64_t> dims_per_head;
    std::string axis = "heads";  // "kv_heads" for keys.
    double epsilon = 1e-6;
    FixedInitLayerHParams layer;
    FIELDS(About(num_heads, kSize), About(dims_per_head, kSize), axis, About(epsilon, kNotNegative),
           layer)
  };
  explicit HeadsRmsNorm(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
  Weight scale_;
};

extern template class HolderOf<UnaryLayer, LayerNorm::HParams>;
extern template class HolderOf<UnaryLayer, RmsNorm::HParams>;
extern template class HolderOf<UnaryLayer, HeadsRmsNorm::HParams>;

}  // namespace tessera
