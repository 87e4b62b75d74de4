// SPDX-License-Identifier: Apache-2.0
// The compiler of this build, for tests that compile something.
#pragma once

#include <string>

namespace tessera {

std::string compiler();

#if defined(__GNUC__) && !defined(__clang__)
inline constexpr bool kCompilerIsGnu = true;
#else
inline constexpr bool kCompilerIsGnu = false;
#endif

}  // namespace tessera
