// SPDX-License-Identifier: Apache-2.0
#include "layers/repeated.h"

#include <vector>

#include "core/base/error.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"

namespace tessera {

template class HolderOf<SequenceLayer, Repeated::HParams>;

namespace {

const TemplateRegistrar<SequenceLayer, Repeated> kRegisterRepeated;

}  // namespace

Repeated::Repeated(const HParams& p)
    : SequenceLayer(Field<DTypePolicy>{}), num_layers_(p.num_layers.get()) {
  if (num_layers_ < 1) fail("num_layers={}, expected at least 1", num_layers_);
  x_layers_ = stacked_child("x_layers[]", num_layers_, p.block_tpl);
}

Tensor Repeated::fprop(Tensor x, const SequenceInfo& sequence) const {
  const LayerScope scope(*this);
  DecodeCache* const cache = FpropScope::current().cache();
  const RepeatResult result =
      repeat(kLayersAxis, num_layers_, {place(x, "residual")}, {},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
               const Tensor input = save_for_backward(carries[0], "iteration_input");
               const Tensor y = x_layers_->fprop(input, sequence);
               return {{y}, cache != nullptr ? cache->loop_slices() : std::vector<Tensor>{}};
             });
  if (cache != nullptr) cache->end_loop(result.stacked);
  return result.carries[0];
}

}  // namespace tessera
