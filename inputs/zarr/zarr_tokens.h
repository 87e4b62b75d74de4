// SPDX-License-Identifier: Apache-2.0
// seqax's flat tokens: a zarr group for each split, with the arrays encoded_tokens and seq_starts,
// copied to a token file document by document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "inputs/flat_tokens_file.h"

namespace tessera {

// The store's groups that hold tokens, `train` first. Error if it has none.
std::vector<std::string> zarr_splits(const std::filesystem::path& store);
// The attribute of that name of the split's group.
int64_t zarr_max_token_id(const std::filesystem::path& store, const std::string& split);

struct ImportedSplit {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t empty = 0;  // Documents without tokens, left out.
};

// Begins that split of `writer` and fills it. Start marks must agree with seq_starts, and ids with
// max_token_id.
ImportedSplit import_zarr_split(const std::filesystem::path& store, const std::string& split,
                                FlatTokensWriter* writer);

}  // namespace tessera
