// SPDX-License-Identifier: Apache-2.0
// The checksum of TFRecord files, which TensorBoard's event files are, too.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/crc32c.h"

namespace tessera {

// CRC-32C rotated, with a constant added: records that contain checksums keep a good one.
inline uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace tessera
