// SPDX-License-Identifier: Apache-2.0
#include "inputs/held_out.h"

#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "inputs/permutation.h"

namespace tessera {

bool is_held_out(std::string_view text, double fraction) {
  if (fraction <= 0.0) return false;
  const uint64_t mixed = mix_bits(crc32c(std::as_bytes(std::span(text))), text.size());
  return static_cast<double>(mixed >> 11) * 0x1p-53 < fraction;
}

void check_validation_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction < 1.0))
    fail("validation_fraction is {}; expected 0 or more, and less than 1", fraction);
}

}  // namespace tessera
