// SPDX-License-Identifier: Apache-2.0
// JAXformer's norm (its class RMSNorm): RMSNorm with a bias.
#pragma once

#include "layers/layer.h"

namespace tessera {

// x["… embed"] -> x / rms(x)·scale + shift, over `embed`.
class ShiftedRmsNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = ShiftedRmsNorm;
    static constexpr std::string_view kName = "jaxformer.ShiftedRmsNorm";
    Required<int64_t> model_dims;
    double epsilon = 1e-6;
    FixedInitLayerHParams layer;
    FIELDS(About(model_dims, kSize), About(epsilon, kNotNegative), layer)
  };
  explicit ShiftedRmsNorm(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  ChildLayer<UnaryLayer> norm_, shift_;
};

}  // namespace tessera
