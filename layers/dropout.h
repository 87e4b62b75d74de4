// SPDX-License-Identifier: Apache-2.0
// Dropout: zeroes elements at random in training and scales the others up (Srivastava et al.,
// 2014). The mask is a pure function of seed, path, step and global element index, so it is the
// same on every mesh and for every number of microbatches.
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class Dropout final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Dropout;
    double rate = 0.0;  // Probability that an element is zeroed, in [0, 1).
    FIELDS(About(rate, kRate))
  };
  explicit Dropout(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  double rate_;
};

extern template class HolderOf<UnaryLayer, Dropout::HParams>;

}  // namespace tessera
