// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/random_kernels.h"

#include <algorithm>

#include "core/base/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/random_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

using Longs = hn::ScalableTag<uint64_t>;
using LongVec = hn::Vec<Longs>;

// A vector of Philox blocks: each word in the lower half of a 64-bit lane. What is in the upper
// half does not matter: products take no notice of it.
struct Blocks {
  LongVec a, b, c, d;
};

// The product of the lower halves.
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

constexpr int64_t kRun = 1024;  // Elements drawn at a time.
constexpr int64_t kSlack = 4 * HWY_MAX_BYTES;

// Words of the elements from `begin` on, rounded down to a block: out[begin % 4] is begin's.
void draw_words(const RandomStream& stream, int64_t begin, int64_t count, uint32_t* out) {
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

// The one formula, core/base/random.h.
HWY_INLINE Vec uniform_at(const uint32_t* words) {
  const auto bits = hn::ShiftRight<8>(hn::LoadU(Words(), words));
  return hn::Mul(hn::ConvertTo(kFloats, hn::BitCast(Ints(), bits)), splat(1.0f / 16777216.0f));
}

void UniformLoop(const RandomStream& stream, int64_t begin, int64_t end, float* out) {
  HWY_ALIGN uint32_t words[kRun + kSlack];
  for (int64_t run = begin; run < end; run += kRun) {
    const int64_t count = std::min(kRun, end - run);
    draw_words(stream, run, count, words);
    const uint32_t* first = words + run % 4;
    for (int64_t i = 0; i < count; i += lanes())
      store(uniform_at(first + i), out + (run - begin) + i, count - i);
  }
}

template <typename T>
void dropout_as(const RandomStream& stream, int64_t offset, float keep, const T* x, T* y,
                int64_t begin, int64_t end) {
  HWY_ALIGN uint32_t words[kRun + kSlack];
  const Vec limit = splat(keep), factor = splat(1.0f / keep);
  for (int64_t run = begin; run < end; run += kRun) {
    const int64_t count = std::min(kRun, end - run);
    draw_words(stream, offset + run, count, words);
    const uint32_t* first = words + (offset + run) % 4;
    for (int64_t i = 0; i < count; i += lanes()) {
      const Vec value = hn::Mul(load(x + run + i, count - i), factor);
      const auto kept = hn::Lt(uniform_at(first + i), limit);
      store(hn::IfThenElseZero(kept, value), y + run + i, count - i);
    }
  }
}

void DropoutLoop(const RandomStream& stream, int64_t first, float keep, DType dtype, const void* x,
                 void* y, int64_t begin, int64_t end) {
  if (dtype == DType::kBF16) {
    dropout_as(stream, first, keep, static_cast<const BFloat16*>(x), static_cast<BFloat16*>(y),
               begin, end);
  } else {
    dropout_as(stream, first, keep, static_cast<const float*>(x), static_cast<float*>(y), begin,
               end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(UniformLoop);
HWY_EXPORT(DropoutLoop);
}  // namespace

void uniform_elements(const RandomStream& stream, int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(UniformLoop)(stream, begin, end, out);
}

void dropout_elements(const RandomStream& stream, int64_t first, float keep, DType dtype,
                      const void* x, void* y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(DropoutLoop)(stream, first, keep, dtype, x, y, begin, end);
}

}  // namespace tessera
#endif  // HWY_ONCE
