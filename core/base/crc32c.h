// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli polynomial, RFC 3720), with the processor's instruction if it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

// Returns the checksum of `bytes`, continued from the `crc` of the preceding bytes.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
// Computes it by a table, for processors without the instruction.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

// The checksum of TFRecord files, which TensorBoard's event files are, too: rotated, with a
// constant added, so that records that contain checksums keep a good one.
inline uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace tessera
