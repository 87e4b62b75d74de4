// SPDX-License-Identifier: Apache-2.0
// CUDA C++ of elementwise ops, for the text of generated kernels (program.h).
#pragma once

#include <string_view>

#include "core/graph/op.h"

namespace tessera::cuda {

// Expressions of one element, with {0}, {1} and {2} for the operands, which are names of variables:
// floats, ints or bools, as the operands' dtype is. Conditions are always bools. Empty: the op is
// not defined on those.
struct ElementCode {
  std::string_view floats, ints, truths;
};

// Null for an op that is no scalar function, or that has no device code.
const ElementCode* element_code(const OpDef& op);

// Types, loads, stores and functions that generated kernels begin with.
extern const char* const kElementPrelude;

}  // namespace tessera::cuda
