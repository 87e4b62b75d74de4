// SPDX-License-Identifier: Apache-2.0
// Parses the PTX that nvcc emits into a module.
#pragma once

#include <memory>
#include <string_view>

#include "tests/virtual_gpu/module.h"

namespace tessera::virtual_gpu {

// Throws Fault with the line of text that is not supported. If !parses_all, kernels are parsed at
// their first use, and faults are thrown then.
std::shared_ptr<const Module> parse_ptx(std::string_view ptx, bool parses_all = true);

}  // namespace tessera::virtual_gpu
