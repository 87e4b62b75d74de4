// SPDX-License-Identifier: Apache-2.0
// Names inside a checkpoint's directory, shared by its writer and its reader.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace tessera {

inline constexpr const char* kCheckpointIndexName = "index.h5";
inline std::string checkpoint_shard_name(int64_t host) {
  return fmt::format("host_{:05}.h5", host);
}

}  // namespace tessera
