// SPDX-License-Identifier: Apache-2.0
// Layers one after the other, each with weights of its own and each a checkpointed region: the
// unrolled twin of Repeated.
#pragma once

#include <memory>
#include <vector>

#include "core/hparams/template.h"
#include "layers/sequence_layer.h"
#include "layers/transformer_block.h"

namespace tessera {

class StackedTransformer final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = StackedTransformer;
    static constexpr std::string_view kName = "StackedTransformer";
    Required<int64_t> num_layers;
    Template<SequenceLayer> block_tpl = TransformerBlock::HParams{};
    FIELDS(num_layers, block_tpl)
  };
  explicit StackedTransformer(const HParams& p);

  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;

 private:
  std::vector<std::unique_ptr<SequenceLayer>> x_layers_;
};

extern template class HolderOf<SequenceLayer, StackedTransformer::HParams>;

}  // namespace tessera
