// SPDX-License-Identifier: Apache-2.0
#include "layers/stacked_transformer.h"

#include "core/base/error.h"

namespace tessera {

template class HolderOf<SequenceLayer, StackedTransformer::HParams>;

namespace {

// Each layer has nodes of its own: planning takes about 5 ms and 0.6 MB a layer.
constexpr int64_t kMaxUnrolledLayers = 4096;

const TemplateRegistrar<SequenceLayer, StackedTransformer> kRegisterStackedTransformer;

}  // namespace

StackedTransformer::StackedTransformer(const HParams& p) : SequenceLayer(Field<DTypePolicy>{}) {
  const int64_t num_layers = p.num_layers.get();
  if (num_layers < 1 || num_layers > kMaxUnrolledLayers)
    fail("num_layers={}, expected 1 to {}{}", num_layers, kMaxUnrolledLayers,
         num_layers < 1 ? "" : "; Repeated takes more, since it plans one layer for all");
  for (int64_t i = 0; i < num_layers; ++i)
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
