// SPDX-License-Identifier: Apache-2.0
// From what nvcc emits, PTX or a fatbin that holds it, to a module.
#pragma once

#include <memory>
#include <string_view>

#include "tests/virtual_gpu/module.h"

namespace tessera::virtual_gpu {

// The PTX in a fatbin, or the text itself.
std::string_view ptx_of(std::string_view image);

// Throws Fault with the line of the text for what is not understood.
std::shared_ptr<const Module> parse_ptx(std::string_view image);

}  // namespace tessera::virtual_gpu
