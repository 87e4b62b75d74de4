// SPDX-License-Identifier: Apache-2.0
// Whether the tests are built with a sanitizer. Its shadow memory makes address space limits
// impossible.
#pragma once

namespace tessera {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tessera
