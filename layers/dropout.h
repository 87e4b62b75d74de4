// SPDX-License-Identifier: Apache-2.0
// Zeroes elements at random while training and scales the rest up (Srivastava et al., 2014). The
// mask is a pure function of seed, path, step and element, so no mesh or microbatching changes it.
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class Dropout final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Dropout;
    static constexpr std::string_view kName = "Dropout";
    double rate = 0.0;  // Of zeroed elements, in [0, 1).
    FIELDS(rate)
  };
  explicit Dropout(const HParams& p);
  Tensor fprop(Tensor x) const override;

 private:
  double rate_;
};

extern template class HolderOf<UnaryLayer, Dropout::HParams>;

}  // namespace tessera
