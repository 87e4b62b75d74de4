// SPDX-License-Identifier: Apache-2.0
// From the PTX that nvcc emits to a module.
#pragma once

#include <memory>
#include <string_view>

#include "tests/virtual_gpu/module.h"

namespace tessera::virtual_gpu {

// Throws Fault with the line of the text for what is not understood: at once, or, unless all of it
// is to be parsed now, when the kernel is first asked for.
std::shared_ptr<const Module> parse_ptx(std::string_view ptx, bool parses_all = true);

}  // namespace tessera::virtual_gpu
