// SPDX-License-Identifier: Apache-2.0
// PCRE2's header for 8-bit text, and its handles as values. Not a public header.
#pragma once

#include <memory>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tessera {

template <typename T, void (*Free)(T*)>
struct Pcre2Free {
  void operator()(T* handle) const { Free(handle); }
};
template <typename T, void (*Free)(T*)>
using Pcre2 = std::unique_ptr<T, Pcre2Free<T, Free>>;

}  // namespace tessera
