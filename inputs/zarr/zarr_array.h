// SPDX-License-Identifier: Apache-2.0
// One-dimensional arrays of whole numbers in a zarr store of format 2, as seqax writes its tokens:
// chunks compressed by blosc, zlib, gzip or Zstandard, perhaps after a delta filter. Stores come
// from anywhere, so sizes are checked before anything is allocated. Not a general reader of zarr.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class ZarrCodec { kNone, kBlosc, kZlib, kGzip, kZstd };

// What a .zarray says.
struct ZarrMetadata {
  int64_t size = 0;   // Elements of the array,
  int64_t chunk = 1;  // and of each chunk; the last one is stored whole, too.
  int64_t element_bytes = 4;
  bool is_signed = false;
  ZarrCodec codec = ZarrCodec::kNone;
  bool has_delta = false;              // Elements are differences from the one before.
  std::optional<uint64_t> fill_value;  // What chunks hold that are not stored.

  int64_t num_chunks() const { return (size + chunk - 1) / chunk; }
  int64_t chunk_bytes() const { return chunk * element_bytes; }
};

// `where` begins messages.
ZarrMetadata parse_zarr_metadata(std::string_view json, const std::string& where);

// The elements of a stored chunk. Error for one that is damaged, or holds negative numbers.
std::vector<uint64_t> decode_zarr_chunk(const ZarrMetadata& metadata, std::string_view bytes,
                                        const std::string& where);

class ZarrArray {
 public:
  explicit ZarrArray(std::filesystem::path folder);
  int64_t size() const { return metadata_.size; }
  int64_t chunk() const { return metadata_.chunk; }
  int64_t num_chunks() const { return metadata_.num_chunks(); }
  // The elements of a chunk that are the array's.
  std::vector<uint64_t> read_chunk(int64_t number) const;

 private:
  void check_completeness() const;

  std::filesystem::path folder_;
  ZarrMetadata metadata_;
};

}  // namespace tessera
