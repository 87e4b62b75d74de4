// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward/linear.h"

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"

namespace tessera {

template class HolderOf<UnaryLayer, Linear::HParams>;
template class HolderOf<UnaryLayer, Bias::HParams>;

namespace {

const TemplateRegistrar<UnaryLayer, Linear> kRegisterLinear;
const TemplateRegistrar<UnaryLayer, Bias> kRegisterBias;

}  // namespace

Linear::Linear(const HParams& p) : UnaryLayer(p.layer), p_(p) {
  if (p.input_axis == p.output_axis)
    fail(
        "Linear: input_axis and output_axis are both '{}'; name the output differently and "
        "rename it afterwards",
        p.input_axis);
  w_ = weight("w", {{p.input_axis, p.input_dims.get()}, {p.output_axis, p.output_dims.get()}},
              p.layer.init());
  if (p.use_bias) bias_ = weight("b", {{p.output_axis, p.output_dims.get()}}, zeros());
}

Tensor Linear::fprop(Tensor x) const {
  Tensor y = place(einsum(x, param(w_), over(p_.input_axis)));
  return bias_.valid() ? y + param_like(bias_, y) : y;
}

Bias::Bias(const HParams& p)
    : UnaryLayer({.dtypes = p.dtypes, .rules = p.rules}),
      b_(weight("b", {{p.axis, p.dims.get()}}, zeros())) {}

Tensor Bias::fprop(Tensor x) const { return x + param_like(b_, x); }

}  // namespace tessera
