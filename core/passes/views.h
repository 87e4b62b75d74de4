// SPDX-License-Identifier: Apache-2.0
// Which nodes of a lowered graph move nothing: their result is a place within their operand.
#pragma once

#include <cstdint>
#include <optional>

#include "core/graph/graph.h"

namespace tessera {

// The bytes from the start of `node`'s first operand at which its result lies, or nullopt if the
// result needs memory of its own. (Row-major: a leading slice is a view, as is a transposition or
// a broadcast that moves or adds only axes of size 1.)
std::optional<int64_t> view_offset(const Graph& graph, const Node& node);

}  // namespace tessera
