// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli polynomial, RFC 3720), with the processor's instruction if it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// Returns the checksum of `bytes`, continued from the `crc` of the preceding bytes.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
// Computes it by a table, for processors without the instruction.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace tessera
