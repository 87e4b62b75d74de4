// SPDX-License-Identifier: Apache-2.0
// Whether the tests are built with a sanitizer, whose shadow memory leaves no room for limits on
// the address space.
#pragma once

namespace tessera {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tessera
