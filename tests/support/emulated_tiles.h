// SPDX-License-Identifier: Apache-2.0
// Emulates AMX tile instructions on processors without them, to test
// core/devices/cpu/gemm/amx_microkernel.h. It follows the pseudocode in Intel's "Architecture
// Instruction Set Extensions": even and odd elements are summed separately over a tile of k and
// then added to the destination; denormal inputs and results are treated as zero. Throws if a tile
// is not configured or is read before it is written.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/base/error.h"

namespace tessera {

class EmulatedTiles {
 public:
  static void configure() {
    configured_ = true;
    written_.fill(false);
  }
  static void release() {
    CHECK(configured_, "tiles are released that were not configured");
    configured_ = false;
  }
  static bool configured() { return configured_; }

  template <int kTile>
  static void zero() {
    write(kTile).fill({});
  }
  template <int kTile>
  static void load(const float* from, int64_t stride) {
    Tile& tile = write(kTile);
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    for (size_t row = 0; row < kRows; ++row)
      std::memcpy(tile[row].data(), bytes + static_cast<int64_t>(row) * stride, sizeof(tile[row]));
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    const Tile& tile = read(kTile);
    auto* bytes = reinterpret_cast<std::byte*>(to);
    for (size_t row = 0; row < kRows; ++row)
      std::memcpy(bytes + static_cast<int64_t>(row) * stride, tile[row].data(), sizeof(tile[row]));
  }
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    static_assert(kSums != kA && kSums != kB && kA != kB);  // Otherwise the instruction faults.
    const Tile &a = read(kA), &b = read(kB);
    Tile& sums = write_back(kSums);
    for (size_t row = 0; row < kRows; ++row) {
      std::array<float, kColumns> even = {}, odd = {};
      for (size_t pair = 0; pair < kColumns; ++pair) {
        const uint32_t left = bits(a[row][pair]);
        for (size_t column = 0; column < kColumns; ++column) {
          const uint32_t right = bits(b[pair][column]);
          even[column] = fused(low(left), low(right), even[column]);
          odd[column] = fused(high(left), high(right), odd[column]);
        }
      }
      for (size_t column = 0; column < kColumns; ++column) {
        const float sum = flushed(even[column] + odd[column]);
        sums[row][column] = flushed(flushed(sums[row][column]) + sum);
      }
    }
  }

 private:
  static constexpr size_t kRows = 16, kColumns = 16;
  using Tile = std::array<std::array<float, kColumns>, kRows>;

  static Tile& write(int tile) {
    CHECK(configured_, "a tile is written before tiles are configured");
    written_[static_cast<size_t>(tile)] = true;
    return tiles_[static_cast<size_t>(tile)];
  }
  static Tile& read(int tile) {
    CHECK(configured_ && written_[static_cast<size_t>(tile)], "tile {} is read but not written",
          tile);
    return tiles_[static_cast<size_t>(tile)];
  }
  static Tile& write_back(int tile) { return read(tile); }

  static uint32_t bits(float value) {
    uint32_t word = 0;
    std::memcpy(&word, &value, sizeof(word));
    return word;
  }
  static float of_bits(uint32_t word) {
    float value = 0.0f;
    std::memcpy(&value, &word, sizeof(value));
    return flushed(value);
  }
  static float low(uint32_t pair) { return of_bits(pair << 16); }
  static float high(uint32_t pair) { return of_bits(pair & 0xffff0000u); }
  static float flushed(float value) {
    return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
  }
  static float fused(float a, float b, float sum) { return flushed(std::fma(a, b, sum)); }

  static inline bool configured_ = false;
  static inline std::array<bool, 8> written_ = {};
  static inline std::array<Tile, 8> tiles_ = {};
};

}  // namespace tessera
