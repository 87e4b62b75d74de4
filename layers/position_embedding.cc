// SPDX-License-Identifier: Apache-2.0
#include "layers/position_embedding.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"

namespace tessera {

template class HolderOf<BasePositionEmbedding, PositionalEmbedding::HParams>;
template class HolderOf<BasePositionEmbedding, TrainablePositionalEmbedding::HParams>;

namespace {

const TemplateRegistrar<BasePositionEmbedding, PositionalEmbedding> kSinusoidal;
const TemplateRegistrar<BasePositionEmbedding, TrainablePositionalEmbedding> kTrainable;

}  // namespace

PositionalEmbedding::PositionalEmbedding(const HParams& p)
    : BasePositionEmbedding(p.dtypes), p_(p) {
  if (p.model_dims.get() % 2 != 0)
    fail("PositionalEmbedding: model_dims={} is odd; half holds sines, half cosines",
         p.model_dims.get());
}

Tensor PositionalEmbedding::sinusoids(Tensor positions) const {
  const int64_t timescales = p_.model_dims.get() / 2;
  const double step = std::log(p_.max_timescale / p_.min_timescale) /
                      static_cast<double>(std::max<int64_t>(timescales - 1, 1));
  const Tensor index = cast(iota({"embed", timescales, {}}), DType::kF32);
  const Tensor frequency = exp(index * -step) / p_.min_timescale;
  const Tensor angle = cast(positions, DType::kF32) * frequency;
  return cast(concat({sin(angle), cos(angle)}, "embed"), dtypes().compute);
}

Tensor PositionalEmbedding::fprop(Tensor positions) const {
  const LayerScope scope(*this);
  // A cache's few new tokens each have a position of their own.
  if (!positions.has("batch") || FpropScope::current().cache() != nullptr)
    return place(sinusoids(positions), "residual");
  // Packed rows count from each document's start, always below the row's length: one row of sines
  // for each position serves the whole batch.
  const Tensor table = sinusoids(iota({"positions", positions.size("seq"), {}}));
  return place(gather(table, place(positions, "residual"), "positions"), "residual");
}

TrainablePositionalEmbedding::TrainablePositionalEmbedding(const HParams& p)
    : BasePositionEmbedding(p.dtypes, p.rules), p_(p) {
  table_ = weight("w", {{"positions", p.max_seq_length.get()}, {"embed", p.model_dims.get()}},
                  p.params_init.get_or(WeightInit{}));
}

Tensor TrainablePositionalEmbedding::fprop(Tensor positions) const {
  const LayerScope scope(*this);
  const DecodeCache* const cache = FpropScope::current().cache();
  const int64_t count = cache != nullptr ? cache->length() : positions.size("seq");
  if (count > p_.max_seq_length.get())
    fail("the {} has {} positions, but the table only max_seq_length={}",
         cache != nullptr ? "cache" : "sequence", count, p_.max_seq_length.get());
  // Where the residual is split along its sequence each device looks up its own positions: what
  // the mesh then adds up is the table's gradient, not the activations'.
  return place(gather(param(table_), place(positions, "residual"), "positions"), "residual");
}

}  // namespace tessera
