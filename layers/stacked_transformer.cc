// SPDX-License-Identifier: Apache-2.0
#include "layers/stacked_transformer.h"

#include "core/base/error.h"

namespace tessera {

template class HolderOf<SequenceLayer, StackedTransformer::HParams>;

namespace {

const TemplateRegistrar<SequenceLayer, StackedTransformer> kRegisterStackedTransformer;

}  // namespace

StackedTransformer::StackedTransformer(const HParams& p) : SequenceLayer(Field<DTypePolicy>{}) {
  if (p.num_layers.get() < 1) fail("num_layers={}, expected at least 1", p.num_layers.get());
  for (int64_t i = 0; i < p.num_layers.get(); ++i)
    x_layers_.push_back(child(fmt::format("x_layers[{}]", i), p.block_tpl));
}

Tensor StackedTransformer::fprop(Tensor x, const SequenceInfo& sequence) const {
  const LayerScope scope(*this);
  for (const auto& layer : x_layers_) {
    const RematScope region;
    x = layer->fprop(x, sequence);
  }
  return x;
}

}  // namespace tessera
