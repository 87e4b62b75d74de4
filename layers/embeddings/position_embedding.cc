// SPDX-License-Identifier: Apache-2.0
#include "layers/embeddings/position_embedding.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "core/ops/rotary.h"
#include "layers/fprop_scope.h"

namespace tessera {

REGISTER_TEMPLATE(BasePositionEmbedding, PositionalEmbedding);
REGISTER_TEMPLATE(BasePositionEmbedding, TrainablePositionalEmbedding);
REGISTER_TEMPLATE(RotaryPositionEmbedding, RotaryPositionEmbedding);

PositionalEmbedding::PositionalEmbedding(const HParams& p)
    : BasePositionEmbedding({.dtypes = p.dtypes}), p_(p) {
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
  // In decoding each row has its own positions, but only a few of them.
  if (!positions.has("batch") || FpropScope::current().cache() != nullptr)
    return place(sinusoids(positions), "residual");
  // Positions in packed rows are less than the row's length: compute one row of sinusoids per
  // position and gather from it.
  const Tensor table = sinusoids(iota({"positions", positions.size("seq"), {}}));
  return place(gather(table, place(positions, "residual"), "positions"), "residual");
}

TrainablePositionalEmbedding::TrainablePositionalEmbedding(const HParams& p)
    : BasePositionEmbedding(p.layer),
      p_(p),
      table_(weight("w", {{"positions", p.max_seq_length.get()}, {"embed", p.model_dims.get()}},
                    p.layer.init())) {}

Tensor TrainablePositionalEmbedding::fprop(Tensor positions) const {
  const DecodeCache* const cache = FpropScope::current().cache();
  const int64_t count = cache != nullptr ? cache->length() : positions.size("seq");
  if (count > p_.max_seq_length.get())
    fail("the {} has {} positions, but the table only max_seq_length={}",
         cache != nullptr ? "cache" : "sequence", count, p_.max_seq_length.get());
  // With a sequence-split residual each device looks up its own positions, so that the reduction is
  // of the table's gradient and not of activations.
  return place(gather(param(table_), place(positions, "residual"), "positions"), "residual");
}

Tensor RotaryPositionEmbedding::fprop(Tensor x, Tensor positions) const {
  RotaryStretch stretch;
  if (p_.stretch)
    stretch = {p_.stretch->factor, p_.stretch->low, p_.stretch->high, p_.stretch->length};
  return rotary(x, positions, "head_dim", p_.max_timescale, p_.min_timescale,
                p_.interleaved ? RotaryStyle::kInterleaved : RotaryStyle::kHalf, stretch);
}

}  // namespace tessera
