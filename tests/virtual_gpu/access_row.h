// SPDX-License-Identifier: Apache-2.0
// Loads and stores of a whole warp, checked together. If a check fails, Block::access repeats the
// checks lane by lane and reports the fault.
#pragma once

#include <cstring>

#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {

// Whether `bytes` bytes (1, 2, 4, 8 or 16) are all 1.
inline bool all_ones(const uint8_t* at, uint32_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  uint64_t first = kOnes, second = kOnes;
  if (bytes == 16) std::memcpy(&second, at + 8, 8);
  switch (bytes) {
    case 1:
      return *at == 1;
    case 2:
      std::memcpy(&first, at, 2);
      break;
    case 4:
      std::memcpy(&first, at, 4);
      break;
    default:
      std::memcpy(&first, at, 8);
  }
  return (first & second) == kOnes;
}

template <bool Writes, bool Global>
bool Block::touch_row(Shadow& shadow, const Warp& warp, const Row& addresses, uint64_t offset,
                      uint32_t mask, uint32_t bytes, uint8_t* initialised) {
  const Knowledge known(warp.block.launch.clocks, warp.index);
  uint64_t last = 0, before_last = 0;  // No address is 0.
  for (; mask; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    // Further reads of the same bytes, after two lanes, do not change a cell.
    if (!Writes && addresses[lane] == last && last == before_last && last != 0) continue;
    before_last = last;
    last = addresses[lane];
    const uint64_t at = last + offset;
    if constexpr (Global) {
      if (Writes) {
        std::memset(initialised + at, 1, bytes);
      } else if (!all_ones(initialised + at, bytes)) {
        return false;
      }
    }
    if (!shadow.touch_freely<Writes, Global>(at, bytes, warp.thread(lane), known)) return false;
  }
  return true;
}

template <bool Writes>
bool Block::access_row(const Warp& warp, Space space, const Row& addresses, uint64_t offset,
                       uint32_t mask, uint32_t bytes, uintptr_t& host) {
  uint64_t low = UINT64_MAX, high = 0, bits = 0;
  for_lanes(mask, [&](int lane) {
    const uint64_t at = addresses[lane] + offset;
    low = std::min(low, at);
    high = std::max(high, at);
    bits |= at;
  });
  if (bits & (bytes - 1)) return false;
  uint64_t window = 0;
  if (space == Space::kGeneric) {
    const bool shared = low >= kSharedWindow && high < kLocalWindow;
    if (!shared && low < kParameterWindow + kWindow) return false;
    if (shared) window = kSharedWindow;
    space = shared ? Space::kShared : Space::kGlobal;
  }
  const auto all = static_cast<uint64_t>(std::popcount(mask)) * bytes;
  if (space == Space::kShared) {
    if (high - window + bytes > shared_bytes_) return false;
    host = reinterpret_cast<uintptr_t>(shared_.get()) - window;
    if (!touch_row<Writes, false>(shared_shadow_, warp, addresses, offset - window, mask, bytes,
                                  nullptr))
      return false;
    launch.counts.shared_bytes += all;
    return true;
  }
  if (space != Space::kGlobal) return false;
  const GlobalMemory::Part* const part = launch.global.known(low, high + bytes);
  if (part == nullptr || part->shadow == nullptr) return false;
  const Allocation& allocation = *part->allocation;
  host = reinterpret_cast<uintptr_t>(allocation.data.get()) - allocation.address;
  if (!touch_row<Writes, true>(*part->shadow, warp, addresses, offset - allocation.address, mask,
                               bytes, allocation.initialised.get()))
    return false;
  launch.counts.global_bytes += all;
  return true;
}

}  // namespace tessera::virtual_gpu
