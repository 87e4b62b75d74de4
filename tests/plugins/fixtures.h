// SPDX-License-Identifier: Apache-2.0
// What the tests of plugins share: where the fixtures are, and errors as text.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace tessera {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(TESSERA_BINARY_DIR) / "fixtures" / name;
}

template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tessera
