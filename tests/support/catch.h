// SPDX-License-Identifier: Apache-2.0
// Catch2, version 2 (Debian 12) or 3 (Debian 13), without its CHECK, which conflicts with
// core/base/error.h: tests use REQUIRE. Include this instead of Catch2's headers, in any order.
#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

#pragma push_macro("CHECK")
#undef CHECK
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#undef CHECK
#pragma pop_macro("CHECK")

#if __has_include(<catch2/catch_all.hpp>)
namespace Catch {  // The names of version 2.
using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::Matches;
using Matchers::StartsWith;
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
using TestEventListenerBase = EventListenerBase;
}  // namespace Catch
using Catch::Approx;
#endif

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
