// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, as of iSCSI, RFC 3720), by the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// Of `bytes`, going on from `crc` of what came before.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
// The table-driven form, which `crc32c` falls back to; tests compare the two.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace tessera
