// SPDX-License-Identifier: Apache-2.0
// Converts vectors of floats from and to bf16 in memory, rounding to nearest even as
// core/base/dtype.h does. Included once per target, as Highway's -inl.h files are.
#include <hwy/highway.h>

#include "core/base/dtype.h"

#if defined(TESSERA_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SIMD_CONVERT_INL_H_
#undef TESSERA_SIMD_CONVERT_INL_H_
#else
#define TESSERA_SIMD_CONVERT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whole vectors, unaligned.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const BFloat16* from) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::Rebind<uint32_t, D> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

// The bf16 bits of the rounded value, in the lower half of each lane.
template <class V>
HWY_INLINE hn::Vec<hn::RebindToSigned<hn::DFromV<V>>> rounded_bits(V value) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const auto word = hn::BitCast(du, value);
  const auto upper = hn::ShiftRight<16>(word);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(upper, hn::Set(du, 0x0040u));
  return hn::BitCast(di, hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded));
}

template <class V>
HWY_INLINE V round_to_bf16(V value) {
  const hn::DFromV<V> d;
  return hn::BitCast(d, hn::ShiftLeft<16>(rounded_bits(value)));
}

template <class D>
HWY_INLINE void store_floats(hn::Vec<D> value, D d, float* to) {
  hn::StoreU(value, d, to);
}
template <class D>
HWY_INLINE void store_floats(hn::Vec<D> value, D, BFloat16* to) {
  const hn::Rebind<uint16_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, rounded_bits(value)), narrow, reinterpret_cast<uint16_t*>(to));
}

// The first `count` lanes; the others are zero.
template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const float* from, size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const BFloat16* from, size_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = static_cast<float>(from[i]);
  return hn::Load(d, lanes);
}
template <class D>
HWY_INLINE void store_some(hn::Vec<D> value, D d, float* to, size_t count) {
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
}
template <class D>
HWY_INLINE void store_some(hn::Vec<D> value, D d, BFloat16* to, size_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = BFloat16(lanes[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_SIMD_CONVERT_INL_H_
