// SPDX-License-Identifier: Apache-2.0
#include "layers/dropout.h"

#include "core/base/error.h"
#include "core/ops/random.h"
#include "layers/fprop_scope.h"

namespace tessera {

REGISTER_TEMPLATE(UnaryLayer, Dropout);

Dropout::Dropout(const HParams& p) : rate_(p.rate) {}

Tensor Dropout::fprop(Tensor x) const {
  const FpropScope& call = FpropScope::current();
  if (rate_ == 0.0 || call.mode() == Mode::kEval) return x;
  if (!call.step().valid())
    fail("dropout derives its mask from the step, but Features::step is not set");
  return dropout(x, rate_, call.step());
}

}  // namespace tessera
