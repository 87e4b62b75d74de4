// SPDX-License-Identifier: Apache-2.0
// Shared by the plugin tests: the paths of the fixtures, and errors as text.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace tessera {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(TESSERA_BINARY_DIR) / "fixtures" / name;
}

}  // namespace tessera
