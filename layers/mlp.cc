// SPDX-License-Identifier: Apache-2.0
#include "layers/mlp.h"

#include "core/base/error.h"
#include "core/ops/layout.h"

namespace tessera {

template class HolderOf<UnaryLayer, Mlp::HParams>;

namespace {

const TemplateRegistrar<UnaryLayer, Mlp> kRegisterMlp;

}  // namespace

Mlp::Mlp(const HParams& p) : UnaryLayer(p.dtypes) {
  if (p.hidden_dims.empty()) fail("Mlp: hidden_dims is empty, expected one size for each layer");
  int64_t dims = p.input_dims.get();
  std::string axis = p.input_axis;
  for (size_t i = 0; i < p.hidden_dims.size(); ++i) {
    Linear::HParams linear{.input_dims = dims,
                           .output_dims = p.hidden_dims[i],
                           .input_axis = axis,
                           .output_axis = "mlp",
                           .use_bias = true};
    linear.dtypes = p.dtypes;
    linear.params_init = p.params_init;
    stages_.push_back({child(fmt::format("linears[{}]", i), Template<UnaryLayer>(linear)),
                       child(fmt::format("activations[{}]", i), p.activation_tpl)});
    dims = p.hidden_dims[i];
    axis = "embed";
  }
}

Tensor Mlp::fprop(Tensor x) const {
  const LayerScope scope(*this);
  for (const Stage& stage : stages_)
    x = rename(stage.activation->fprop(stage.linear->fprop(x)), "mlp", "embed");
  return x;
}

}  // namespace tessera
