// SPDX-License-Identifier: Apache-2.0
// Names in a checkpoint's directory and files, shared by the writer and the reader.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/dtype.h"

namespace tessera {

inline constexpr const char* kCheckpointIndexName = "index.h5";
inline std::string checkpoint_shard_name(int64_t host) {
  return fmt::format("host_{:05}.h5", host);
}

// The tables that Tessera reads; HDF5 files are for other programs (checkpoint_table.h).
inline constexpr const char* kCheckpointIndexTableName = "index.table";
inline std::string checkpoint_table_name(int64_t host) {
  return fmt::format("host_{:05}.table", host);
}

// A piece is a dataset with the array's name, followed by its origin if it is not the whole array:
// "params/w@0_1024". So a host can hold several pieces of one array.
std::string checkpoint_piece_name(const std::string& array, const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& offset,
                                  const std::vector<int64_t>& piece);
std::string checkpoint_array_name(const std::string& piece_name);

// Texts in the index. kCheckpointArrays lists the arrays, one per line: "f32 [300 64] path".
inline constexpr const char* kCheckpointHparams = "hparams";
inline constexpr const char* kCheckpointArrays = "arrays";

// The element types of arrays.
inline constexpr std::array<DType, 6> kCheckpointDTypes = {DType::kF64, DType::kF32, DType::kBF16,
                                                           DType::kI32, DType::kU32, DType::kBool};

// "[300 64]", in lists and messages.
inline std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, " "));
}

}  // namespace tessera
