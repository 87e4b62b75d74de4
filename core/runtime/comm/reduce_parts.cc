// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/reduce_parts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kTile = 1024;  // Elements worked on at a time: they stay in the nearest cache.

struct Sum {
  template <typename T>
  static T of(T a, T b) {
    return a + b;
  }
};

struct Max {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a != a ? a : (a < b || b != b ? b : a);
    return a < b ? b : a;
  }
};

template <typename Stored, typename Held>
void load(const std::byte* source, int64_t at, int64_t count, Held* tile) {
  const auto* from = reinterpret_cast<const Stored*>(source) + at;
  for (int64_t i = 0; i < count; ++i) tile[i] = static_cast<Held>(from[i]);
}

// A tile of the tree over `sources`.
template <typename Stored, typename Held, typename Op>
void reduce_tile(std::span<const std::byte* const> sources, int64_t at, int64_t count, Held* tile) {
  const auto source = [&](size_t i) { return reinterpret_cast<const Stored*>(sources[i]) + at; };
  if (sources.size() == 1) {
    load<Stored>(sources[0], at, count, tile);
  } else if (sources.size() == 2) {
    const Stored *a = source(0), *b = source(1);
    for (int64_t i = 0; i < count; ++i)
      tile[i] = Op::of(static_cast<Held>(a[i]), static_cast<Held>(b[i]));
  } else if (sources.size() == 4) {
    const Stored *a = source(0), *b = source(1), *c = source(2), *d = source(3);
    for (int64_t i = 0; i < count; ++i) {
      tile[i] = Op::of(Op::of(static_cast<Held>(a[i]), static_cast<Held>(b[i])),
                       Op::of(static_cast<Held>(c[i]), static_cast<Held>(d[i])));
    }
  } else {
    const size_t left = std::bit_floor(sources.size() - 1);
    alignas(64) Held other[kTile];
    reduce_tile<Stored, Held, Op>(sources.first(left), at, count, tile);
    reduce_tile<Stored, Held, Op>(sources.subspan(left), at, count, other);
    for (int64_t i = 0; i < count; ++i) tile[i] = Op::of(tile[i], other[i]);
  }
}

template <typename Stored, typename Held, typename Op>
void reduce_all(std::span<const std::byte* const> sources, std::byte* result, int64_t elements) {
  alignas(64) Held tile[kTile];
  auto* to = reinterpret_cast<Stored*>(result);
  for (int64_t at = 0; at < elements; at += kTile) {
    const int64_t count = std::min(kTile, elements - at);
    reduce_tile<Stored, Held, Op>(sources, at, count, tile);
    for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<Stored>(tile[i]);
  }
}

template <typename Stored, typename Held>
void reduce_as(Reduction reduction, std::span<const std::byte* const> sources, std::byte* result,
               int64_t elements) {
  if (reduction == Reduction::kSum) {
    reduce_all<Stored, Held, Sum>(sources, result, elements);
  } else {
    reduce_all<Stored, Held, Max>(sources, result, elements);
  }
}

}  // namespace

void reduce_parts(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                  std::byte* result, int64_t elements) {
  CHECK(!sources.empty());
  switch (dtype) {
    case DType::kF64:
      return reduce_as<double, double>(reduction, sources, result, elements);
    case DType::kF32:
      return reduce_as<float, float>(reduction, sources, result, elements);
    case DType::kBF16:
      return reduce_as<BFloat16, float>(reduction, sources, result, elements);
    case DType::kI32:
      return reduce_as<int32_t, int32_t>(reduction, sources, result, elements);
    case DType::kU32:
      return reduce_as<uint32_t, uint32_t>(reduction, sources, result, elements);
    case DType::kBool:
      break;
  }
  fail("{} cannot be reduced over devices; cast it to i32", dtype_name(dtype));
}

}  // namespace tessera
