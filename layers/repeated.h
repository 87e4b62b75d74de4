// SPDX-License-Identifier: Apache-2.0
// One block applied num_layers times with different weights: they are stacked on a `layers` axis,
// the body is traced once, and the program loops. Same bits as StackedTransformer of that block.
#pragma once

#include <memory>

#include "core/hparams/template.h"
#include "layers/sequence_layer.h"
#include "layers/transformer_block.h"

namespace tessera {

class Repeated final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = Repeated;
    static constexpr std::string_view kName = "Repeated";
    Required<int64_t> num_layers;
    Template<SequenceLayer> block_tpl = TransformerBlock::HParams{};
    FIELDS(num_layers, block_tpl)
  };
  explicit Repeated(const HParams& p);

  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;

 private:
  int64_t num_layers_;
  std::unique_ptr<SequenceLayer> x_layers_;
};

extern template class HolderOf<SequenceLayer, Repeated::HParams>;

}  // namespace tessera
