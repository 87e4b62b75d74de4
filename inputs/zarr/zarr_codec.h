// SPDX-License-Identifier: Apache-2.0
// Chunks of a zarr array, decompressed to a size that is known beforehand.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "inputs/zarr/zarr_array.h"

namespace tessera {

// Error unless `packed` stands for just as many bytes as `into` has.
void unpack_zarr_chunk(ZarrCodec codec, std::string_view packed, std::span<char> into,
                       const std::string& where);

}  // namespace tessera
