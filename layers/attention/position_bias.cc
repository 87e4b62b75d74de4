// SPDX-License-Identifier: Apache-2.0
#include "layers/attention/position_bias.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/reshard.h"

namespace tessera {

REGISTER_TEMPLATE(BasePositionBias, RelativePositionBias);
REGISTER_TEMPLATE(BasePositionBias, AlibiBias);

namespace {

Tensor whole_number(int64_t value) { return constant(static_cast<double>(value), DType::kI32); }

// The smallest distances of the ranges after the first that holds several: range i of `count`
// begins where count·log(d/exact)/log(most/exact) reaches i. In f32, as T5 computes it.
std::vector<int64_t> range_begins(int64_t exact, int64_t count, int64_t most) {
  const float all = std::log(static_cast<float>(most) / static_cast<float>(exact));
  std::vector<int64_t> begins;
  for (int64_t d = exact; d < most && std::ssize(begins) + 1 < count; ++d) {
    const float share = std::log(static_cast<float>(d) / static_cast<float>(exact)) / all;
    while (std::ssize(begins) + 1 < count &&
           static_cast<int64_t>(share * static_cast<float>(count)) > std::ssize(begins))
      begins.push_back(d);
  }
  return begins;
}

}  // namespace

RelativePositionBias::RelativePositionBias(const HParams& p) : BasePositionBias(p.layer), p_(p) {
  const int64_t exact = p.num_buckets / (p.bidirectional ? 4 : 2);
  if (p.max_distance <= exact)
    fail(
        "max_distance={} with num_buckets={}: the nearest {} distances have a bias each; expected "
        "a max_distance above that",
        p.max_distance, p.num_buckets, exact);
  table_ = weight("w", {{"buckets", p.num_buckets}, {"heads", p.num_heads.get()}}, p.layer.init());
}

Tensor RelativePositionBias::bucket_of(const Tensor& distance) const {
  const Tensor zero = whole_number(0);
  const int64_t all = p_.bidirectional ? p_.num_buckets / 2 : p_.num_buckets;
  const int64_t exact = all / 2;
  const Tensor apart =
      p_.bidirectional ? maximum(distance, neg(distance)) : maximum(neg(distance), zero);
  Tensor bucket = minimum(apart, whole_number(exact));
  for (const int64_t begin : range_begins(exact, all - exact, p_.max_distance))
    bucket = bucket + where(less_equal(whole_number(begin), apart), whole_number(1), zero);
  if (!p_.bidirectional) return bucket;
  return bucket + where(less(zero, distance), whole_number(all), zero);
}

Tensor RelativePositionBias::fprop(Tensor distance, const Axis& heads) const {
  const Tensor like_heads = constant(0.0, DType::kF32, {heads});
  return gather(param_like(table_, like_heads, DType::kF32), bucket_of(distance), "buckets");
}

Tensor AlibiBias::fprop(Tensor distance, const Axis& heads) const {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads.size)));
  const double step = max_exponent_ / static_cast<double>(power);
  const Tensor head = cast(iota(heads), DType::kF32);
  Tensor exponent = (head + 1.0) * step;
  if (power < heads.size)
    exponent = where(less(iota(heads), whole_number(power)), exponent,
                     (head - (static_cast<double>(power) - 0.5)) * step);
  const Tensor slope = exp(exponent * -std::numbers::ln2);
  return neg(abs(cast(distance, DType::kF32))) * slope;
}

}  // namespace tessera
