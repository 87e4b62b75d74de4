// SPDX-License-Identifier: Apache-2.0
// Conversion between the doubles of the reference interpreter and the bytes of a device.
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/type.h"

namespace tessera {

// Floats are rounded to the dtype; bools take one byte.
void encode_values(DType dtype, const std::vector<double>& values, std::byte* bytes);
std::vector<double> decode_values(const Type& type, const std::byte* bytes);

}  // namespace tessera
