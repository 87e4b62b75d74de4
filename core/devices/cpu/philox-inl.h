// SPDX-License-Identifier: Apache-2.0
// Vectors of Philox-4x32-10 blocks (Salmon et al., 2011). Element i of a stream is word i % 4 of
// the block at counter i / 4, so that an element depends on its index only and threads draw
// independently (core/base/random.h). Included once per target, as Highway's -inl.h files are.
#if defined(TESSERA_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_PHILOX_INL_H_
#undef TESSERA_PHILOX_INL_H_
#else
#define TESSERA_PHILOX_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "core/base/random.h"
#include "core/devices/cpu/simd-inl.h"
#include "core/ops/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

using Longs = hn::ScalableTag<uint64_t>;
using LongVec = hn::Vec<Longs>;

// A vector of Philox blocks, each word in the lower half of a 64-bit lane. Upper halves hold
// garbage, which products ignore.
struct Blocks {
  LongVec a, b, c, d;
};

// Returns the product of the lower halves.
HWY_INLINE LongVec wide_product(LongVec x, uint32_t factor) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Longs(), (hn::GetLane(x) & 0xffffffffu) * factor);
#else
  const hn::Repartition<uint32_t, Longs> words;
  return hn::MulEven(hn::BitCast(words, x), hn::Set(words, factor));
#endif
}

HWY_INLINE Blocks philox_blocks(const RandomStream& stream, int64_t counter) {
  const Longs longs;
  const LongVec counters = hn::Iota(longs, static_cast<uint64_t>(counter));
  Blocks blocks{counters, hn::ShiftRight<32>(counters), hn::Set(longs, stream.step & 0xffffffffu),
                hn::Set(longs, stream.step >> 32)};
  uint32_t key0 = static_cast<uint32_t>(stream.key);
  uint32_t key1 = static_cast<uint32_t>(stream.key >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const LongVec from_a = wide_product(blocks.a, 0xD2511F53u);
    const LongVec from_c = wide_product(blocks.c, 0xCD9E8D57u);
    blocks.a = hn::Xor(hn::Xor(hn::ShiftRight<32>(from_c), blocks.b), hn::Set(longs, key0));
    blocks.b = from_c;
    blocks.c = hn::Xor(hn::Xor(hn::ShiftRight<32>(from_a), blocks.d), hn::Set(longs, key1));
    blocks.d = from_a;
  }
  return blocks;
}

inline constexpr int64_t kChunk = 1024;  // Elements drawn at a time.
// Buffer size for the words of a chunk: whole vectors of blocks, loads of vectors from any element.
inline constexpr int64_t kWordsOfChunk = kChunk + 4 * HWY_MAX_BYTES;

// Draws the words of the elements from `begin` on, rounded down to a whole block: the word of
// element `begin` is out[begin % 4].
inline void draw_words(const RandomStream& stream, int64_t begin, int64_t count, uint32_t* out) {
  const Longs longs;
  const LongVec lower = hn::Set(longs, 0xffffffffu);
  const auto step = static_cast<int64_t>(hn::Lanes(longs));
  const int64_t first = begin / 4, end = (begin + count + 3) / 4;
  for (int64_t block = first; block < end; block += step) {
    const Blocks blocks = philox_blocks(stream, block);
    const LongVec ab = hn::Or(hn::And(blocks.a, lower), hn::ShiftLeft<32>(blocks.b));
    const LongVec cd = hn::Or(hn::And(blocks.c, lower), hn::ShiftLeft<32>(blocks.d));
    hn::StoreInterleaved2(ab, cd, longs, reinterpret_cast<uint64_t*>(out + 4 * (block - first)));
  }
}

// Returns the 16 bits of noise in each word.
template <class V>
HWY_INLINE V noise_of(V words, NoiseHalf half) {
  return half == NoiseHalf::kHigh ? hn::ShiftRight<16>(words)
                                  : hn::And(words, hn::Set(hn::DFromV<V>(), 0xffffu));
}

// Computes stochastic_bf16_bits() of core/base/random.h, in the upper halves of bf16-valued floats.
template <class V>
HWY_INLINE Vec rounded_to_bf16(Vec value, V noise) {
  const Words words;
  const auto bits = hn::BitCast(words, value);
  const auto rounded = hn::And(hn::Add(bits, noise), hn::Set(words, 0xffff0000u));
  // A NaN keeps its bits: the store makes it quiet.
  return hn::IfThenElse(hn::IsNaN(value), value, hn::BitCast(kFloats, rounded));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_PHILOX_INL_H_
