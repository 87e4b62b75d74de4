// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/array_hash.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace tessera {
namespace {

constexpr uint64_t kFirst = 0x87c37b91114253d5u, kSecond = 0x4cf5ad432745937fu;
constexpr size_t kBlock = 16;

uint64_t mixed_first(uint64_t word) { return std::rotl(word * kFirst, 31) * kSecond; }
uint64_t mixed_second(uint64_t word) { return std::rotl(word * kSecond, 33) * kFirst; }

}  // namespace

uint64_t hashed_bits(uint64_t bits) {
  bits = (bits ^ (bits >> 33)) * 0xff51afd7ed558ccdu;
  bits = (bits ^ (bits >> 33)) * 0xc4ceb9fe1a85ec53u;
  return bits ^ (bits >> 33);
}

std::string array_hash(std::span<const std::byte> bytes) {
  uint64_t first = 0, second = 0;
  uint64_t words[2];
  size_t at = 0;
  for (; at + kBlock <= bytes.size(); at += kBlock) {
    std::memcpy(words, bytes.data() + at, kBlock);
    first = (std::rotl(first ^ mixed_first(words[0]), 27) + second) * 5 + 0x52dce729u;
    second = (std::rotl(second ^ mixed_second(words[1]), 31) + first) * 5 + 0x38495ab5u;
  }
  words[0] = words[1] = 0;
  if (at < bytes.size()) std::memcpy(words, bytes.data() + at, bytes.size() - at);
  second ^= mixed_second(words[1]);
  first ^= mixed_first(words[0]);

  first ^= bytes.size();
  second ^= bytes.size();
  first += second;
  second += first;
  first = hashed_bits(first);
  second = hashed_bits(second);
  first += second;
  second += first;
  return fmt::format("{:016x}{:016x}", first, second);
}

}  // namespace tessera
