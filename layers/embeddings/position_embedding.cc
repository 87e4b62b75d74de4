// SPDX-License-Identifier: Apache-2.0
#include "layers/embeddings/position_embedding.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
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
  if (count > p_.max_seq_length.get() - p_.first_row)
    fail("the {} has {} positions, but the table only max_seq_length={}{}",
         cache != nullptr ? "cache" : "sequence", count, p_.max_seq_length.get(),
         p_.first_row > 0 ? fmt::format(", of which first_row={} are not used", p_.first_row) : "");
  // With a sequence-split residual each device looks up its own positions, so that the reduction is
  // of the table's gradient and not of activations.
  const Tensor table = param_part(table_, "positions", p_.first_row, p_.first_row + count);
  return place(gather(table, place(positions, "residual"), "positions"), "residual");
}

namespace {

// The number, from 0 to the number of pairs, of the pair that turns `turns` times in the length.
double pair_of_turns(double turns, double length, double pairs, double max_timescale) {
  return pairs * std::log(length / (turns * 2.0 * std::numbers::pi)) / std::log(max_timescale);
}

RotaryStretch stretch_of(const RotaryYarnHParams& yarn, double pairs, double max_timescale) {
  double first = pair_of_turns(yarn.fast, yarn.length, pairs, max_timescale);
  double last = pair_of_turns(yarn.slow, yarn.length, pairs, max_timescale);
  if (yarn.whole_pairs) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, 2.0 * pairs - 1.0);
  if (first == last) last += 0.001;  // As Hugging Face: no division by 0.
  return {.factor = yarn.factor, .low = -last, .high = -first, .length = 0.0, .index_step = -1.0};
}

}  // namespace

RotaryPositionEmbedding::RotaryPositionEmbedding(const HParams& p) : p_(p) {
  if (p.stretch.has_value() + p.yarn.has_value() + p.long_sequences.has_value() +
          p.dynamic.has_value() >
      1)
    fail(
        "rotary embedding with several of stretch, yarn, long_sequences and dynamic; set only one");
  if (p.dynamic && (p.interleaved || p.min_timescale != 1.0))
    fail("rotary embedding with dynamic: expected interleaved=false and min_timescale=1");
  if (p.yarn && p.yarn->slow >= p.yarn->fast)
    fail("yarn.slow={} is not below yarn.fast={}", p.yarn->slow, p.yarn->fast);
}

Tensor RotaryPositionEmbedding::fprop(Tensor x, Tensor positions) const {
  const int64_t head_dim = x.size("head_dim");
  const auto dims = static_cast<int64_t>(p_.rotary_share * static_cast<double>(head_dim));
  if (dims == head_dim) return rotated(x, positions);
  if (dims < 2)
    fail("rotary_share={} of head_dim={} is less than a pair", p_.rotary_share, head_dim);
  return concat(
      {rotated(slice(x, "head_dim", 0, dims), positions), slice(x, "head_dim", dims, head_dim)},
      "head_dim");
}

Tensor RotaryPositionEmbedding::rotated(const Tensor& x, const Tensor& positions) const {
  RotaryStretch stretch;
  if (p_.stretch)
    stretch = {p_.stretch->factor, p_.stretch->low, p_.stretch->high, p_.stretch->length};
  if (p_.yarn)
    stretch = stretch_of(*p_.yarn, static_cast<double>(x.size("head_dim")) / 2.0,
                         p_.max_timescale / p_.min_timescale);
  const Tensor y = p_.long_sequences ? rotated_for_length(x, positions)
                   : p_.dynamic      ? rotated_dynamically(x, positions)
                                     : rotated_by(x, positions, stretch);
  return p_.output_scale == 1.0 ? y : y * p_.output_scale;
}

Tensor RotaryPositionEmbedding::rotated_by(const Tensor& x, const Tensor& positions,
                                           const RotaryStretch& stretch) const {
  return rotary(x, positions, "head_dim", p_.max_timescale, p_.min_timescale,
                p_.interleaved ? RotaryStyle::kInterleaved : RotaryStyle::kHalf, stretch);
}

namespace {

// The most tokens that a row can have.
int64_t most_tokens(const Tensor& positions) {
  const DecodeCache* const cache = FpropScope::current().cache();
  return cache != nullptr ? cache->length() : positions.size("seq");
}

// The last position of each token's document. Pass n looks 2^n tokens ahead. If that token is of
// the same document, the last position found for it is also that of this token.
Tensor last_in_document(const Tensor& positions) {
  const Tensor whole = whole_along(positions, "seq");
  Tensor last = whole;
  const int64_t seq = whole.size("seq");
  for (int64_t step = 1; step < seq; step *= 2) {
    const auto later = [&](const Tensor& x) {
      return pad(slice(x, "seq", step, seq), "seq", 0, step);
    };
    const Tensor next = whole + constant(static_cast<double>(step), DType::kI32);
    last = where(equal(later(whole), next), later(last), last);
  }
  return reshard(last, positions.type());
}

// Returns the number of tokens on which the rotation depends, in f32. In decoding: those of each
// row (["batch"]). Otherwise: those of each document (["batch seq"]), or of a row (a scalar).
Tensor deciding_tokens(const Tensor& positions) {
  const DecodeCache* const cache = FpropScope::current().cache();
  if (cache != nullptr) return cast(cache->tokens_like(positions), DType::kF32);
  if (positions.has("batch")) return cast(last_in_document(positions), DType::kF32) + 1.0;
  return reduce_max(cast(whole_along(positions, "seq"), DType::kF32), "seq") + 1.0;
}

}  // namespace

// The length of a document decides. In decoding keys of earlier steps keep their rotation, as in
// Hugging Face's forward with a cache. Rows that cannot be long enough need no decision.
Tensor RotaryPositionEmbedding::rotated_for_length(const Tensor& x, const Tensor& positions) const {
  const Tensor within = rotated_by(x, positions, {.divisors = p_.long_sequences->short_divisors});
  if (static_cast<double>(most_tokens(positions)) <= p_.long_sequences->length) return within;
  const Tensor beyond = rotated_by(x, positions, {.divisors = p_.long_sequences->long_divisors});
  const Tensor is_long =
      less(constant(p_.long_sequences->length + 0.5, DType::kF32), deciding_tokens(positions));
  return where(is_long, beyond, within);
}

// Angles are computed here, because those of the op are the same in all rows. Again the length of
// a document decides.
Tensor RotaryPositionEmbedding::rotated_dynamically(const Tensor& x,
                                                    const Tensor& positions) const {
  const auto [factor, length] = std::pair(p_.dynamic->factor, p_.dynamic->length);
  if (static_cast<double>(most_tokens(positions)) <= length) return rotated_by(x, positions, {});
  const int64_t dims = x.size("head_dim"), half = dims / 2;
  if (dims < 4 || dims % 2 != 0)
    fail("dynamic rotary positions rotate {} elements of a head, expected an even number from 4",
         dims);
  const Tensor tokens = maximum(deciding_tokens(positions), constant(length, DType::kF32));
  const Tensor growth = tokens * (factor / length) - (factor - 1.0);
  const Tensor pair = cast(iota({"head_dim", half, {}}), DType::kF32);
  const Tensor slower = log(growth) * (pair * (-1.0 / static_cast<double>(half - 1)));
  const Tensor frequency =
      exp(slower + pair * (-std::log(p_.max_timescale) / static_cast<double>(half)));
  const Tensor angle = cast(positions, DType::kF32) * frequency;
  const Tensor cosine = cos(angle), sine = sin(angle), wide = widened(x);
  const Tensor first = slice(wide, "head_dim", 0, half);
  const Tensor second = slice(wide, "head_dim", half, dims);
  return as_dtype(
      concat({first * cosine - second * sine, second * cosine + first * sine}, "head_dim"),
      x.dtype());
}

}  // namespace tessera
