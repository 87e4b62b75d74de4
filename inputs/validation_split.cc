// SPDX-License-Identifier: Apache-2.0
#include "inputs/validation_split.h"

#include <span>

#include "core/base/crc32c.h"
#include "inputs/shuffle.h"

namespace tessera {
namespace {

uint64_t hash_of_text(std::string_view text) {
  return mix_bits(crc32c(std::as_bytes(std::span(text))), text.size());
}

}  // namespace

bool in_validation_split(std::string_view text, double fraction) {
  if (fraction <= 0.0) return false;
  return static_cast<double>(hash_of_text(text) >> 11) * 0x1p-53 < fraction;
}

}  // namespace tessera
