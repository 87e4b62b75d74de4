// SPDX-License-Identifier: Apache-2.0
// seqax's flat tokens in a zarr store of format 2: a group per split, with the arrays
// encoded_tokens and seq_starts. The command `flat_tokens import` converts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class ZarrCodec { kNone, kBlosc, kZlib, kGzip, kZstd };

// The contents of .zarray.
struct ZarrMetadata {
  int64_t size = 0;   // Elements of the array,
  int64_t chunk = 1;  // and of each chunk; the last chunk is padded.
  int64_t element_bytes = 4;
  bool is_signed = false;
  ZarrCodec codec = ZarrCodec::kNone;
  bool has_delta = false;              // Elements are differences.
  std::optional<uint64_t> fill_value;  // The value of chunks that are not stored.

  int64_t num_chunks() const { return (size + chunk - 1) / chunk; }
  int64_t chunk_bytes() const { return chunk * element_bytes; }
};

// Parses .zarray; `where` begins messages.
ZarrMetadata parse_zarr_metadata(std::string_view json, const std::string& where);

// Returns the elements of a stored chunk. Error if it is damaged or has negative numbers.
std::vector<uint64_t> decode_zarr_chunk(const ZarrMetadata& metadata, std::string_view bytes,
                                        const std::string& where);

}  // namespace tessera
