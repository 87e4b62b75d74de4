// SPDX-License-Identifier: Apache-2.0
// The compiler of this build, for tests that compile something, and whether it adds a sanitizer.
#pragma once

#include <string>

namespace tessera {

std::string compiler();

#if defined(__GNUC__) && !defined(__clang__)
inline constexpr bool kCompilerIsGnu = true;
#else
inline constexpr bool kCompilerIsGnu = false;
#endif

// A sanitizer needs address space for its shadow memory, and keeps memory that was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tessera
