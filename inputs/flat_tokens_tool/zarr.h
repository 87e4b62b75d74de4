// SPDX-License-Identifier: Apache-2.0
// seqax's flat tokens in a zarr store of format 2: a group per split, with the arrays
// encoded_tokens and seq_starts. The command `flat_tokens import` converts it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_file.h"

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

// One-dimensional integer arrays: chunks compressed by blosc, zlib, gzip or Zstandard, with an
// optional delta filter. Stores are untrusted: sizes are checked before allocation.
class ZarrArray {
 public:
  explicit ZarrArray(std::filesystem::path folder);
  int64_t size() const { return metadata_.size; }
  int64_t chunk() const { return metadata_.chunk; }
  int64_t num_chunks() const { return metadata_.num_chunks(); }
  // Returns the elements of a chunk, without padding.
  std::vector<uint64_t> read_chunk(int64_t number) const;

 private:
  void check_completeness() const;

  std::filesystem::path folder_;
  ZarrMetadata metadata_;
};

// Returns the groups of the store that hold tokens, `train` first. Error if the store has none.
std::vector<std::string> zarr_splits(const std::filesystem::path& store);
// Returns the max_token_id attribute of the split's group.
int64_t zarr_max_token_id(const std::filesystem::path& store, const std::string& split);

struct ImportedSplit {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t empty = 0;  // Documents without tokens, skipped.
};

// Begins the split in `writer` and fills it. Error if start marks disagree with seq_starts, or ids
// with max_token_id.
ImportedSplit import_zarr_split(const std::filesystem::path& store, const std::string& split,
                                FlatTokensWriter* writer);

}  // namespace tessera
