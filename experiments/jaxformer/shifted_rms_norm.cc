// SPDX-License-Identifier: Apache-2.0
#include "experiments/jaxformer/shifted_rms_norm.h"

#include "core/hparams/template.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/norms/norms.h"

namespace tessera {

REGISTER_TEMPLATE(UnaryLayer, ShiftedRmsNorm);

ShiftedRmsNorm::ShiftedRmsNorm(const HParams& p) : UnaryLayer(p.layer) {
  norm_ = child<UnaryLayer>("norm", RmsNorm::HParams{.model_dims = p.model_dims,
                                                     .epsilon = p.epsilon,
                                                     .layer = {.dtypes = p.layer.dtypes}});
  shift_ = child<UnaryLayer>(
      "shift", Bias::HParams{.dims = p.model_dims, .layer = {.dtypes = p.layer.dtypes}});
}

Tensor ShiftedRmsNorm::fprop(Tensor x) const { return shift_(norm_(x)); }

}  // namespace tessera
