// SPDX-License-Identifier: Apache-2.0
// Catch2 without its CHECK, which conflicts with core/base/error.h: tests use REQUIRE. Include this
// instead of <catch2/catch.hpp>, in any order.
#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <catch2/catch.hpp>
#undef CHECK
#pragma pop_macro("CHECK")

namespace tessera {

// The message of the Error that `action` throws, or "no error".
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tessera
