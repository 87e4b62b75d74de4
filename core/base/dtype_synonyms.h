// SPDX-License-Identifier: Apache-2.0
// What other tools call element types.
#pragma once

#include <string_view>

namespace tessera {

// The name used here: "bf16" for "bfloat16", "f32" for "float32", "f16" for "half"; any other text
// as it is.
std::string_view short_dtype_name(std::string_view name);

}  // namespace tessera
