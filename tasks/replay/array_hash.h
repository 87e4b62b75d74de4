// SPDX-License-Identifier: Apache-2.0
// Hashes of an array's bytes that two machines can compare in place of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera {

// MurmurHash3_x64_128 with seed 0 (Austin Appleby, 2011, public domain) as 32 hexadecimal digits.
// Not cryptographic.
std::string array_hash(std::span<const std::byte> bytes);
// Its finalizer, a hash of one word: a bijection that maps 0 to 0.
uint64_t hashed_bits(uint64_t bits);

}  // namespace tessera
