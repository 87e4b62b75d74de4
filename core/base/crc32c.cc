// SPDX-License-Identifier: Apache-2.0
#include "core/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tessera {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // Bit-reversed: the highest power is the lowest bit.

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    table[i] = crc;
  }
  return table;
}

#if defined(__x86_64__)
// Returns the product of two polynomials modulo the CRC polynomial.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1u) != 0 ? kPolynomial : 0u);
  }
  return product;
}

// Returns x^(8 * bytes): the factor by which `bytes` following zeros change a checksum.
constexpr uint32_t shift_by(uint64_t bytes) {
  uint32_t result = 0x80000000u;  // 1
  uint32_t power = 0x00800000u;   // x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1u) != 0) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

// The instruction has a latency of three cycles and a throughput of one, so three independent runs
// are three times as fast as one. Multiplication by powers of x combines their checksums.
constexpr size_t kRun = size_t{32} << 10;
constexpr uint32_t kShiftOne = shift_by(kRun);
constexpr uint32_t kShiftTwo = shift_by(2 * kRun);

uint64_t word_at(const std::byte* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, 8);
  return word;
}

__attribute__((target("sse4.2"))) uint64_t three_runs(const std::byte* bytes, uint64_t state) {
  uint64_t second = 0, third = 0;
  for (size_t i = 0; i < kRun; i += 8) {
    state = _mm_crc32_u64(state, word_at(bytes + i));
    second = _mm_crc32_u64(second, word_at(bytes + kRun + i));
    third = _mm_crc32_u64(third, word_at(bytes + 2 * kRun + i));
  }
  return multiply(static_cast<uint32_t>(state), kShiftTwo) ^
         multiply(static_cast<uint32_t>(second), kShiftOne) ^ third;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(std::span<const std::byte> bytes,
                                                        uint32_t crc) {
  uint64_t state = ~crc;
  size_t i = 0;
  for (; i + 3 * kRun <= bytes.size(); i += 3 * kRun) state = three_runs(bytes.data() + i, state);
  for (; i + 8 <= bytes.size(); i += 8) state = _mm_crc32_u64(state, word_at(bytes.data() + i));
  for (; i < bytes.size(); ++i)
    state = _mm_crc32_u8(static_cast<uint32_t>(state), static_cast<uint8_t>(bytes[i]));
  return ~static_cast<uint32_t>(state);
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  crc = ~crc;
  for (std::byte byte : bytes)
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xffu] ^ (crc >> 8);
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_sse42(bytes, crc);
#endif
  return crc32c_portable(bytes, crc);
}

}  // namespace tessera
