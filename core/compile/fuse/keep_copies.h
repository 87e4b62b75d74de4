// SPDX-License-Identifier: Apache-2.0
// Copies of parameters in bf16 that outlive a step: the update of an f32 parameter stores it in
// both dtypes, and the casts that read it disappear. Before fuse_updates(). Linear in the graph.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace tessera {

// Keeps a copy in bf16 of each f32 parameter that adam_update writes and casts read. The copy is a
// further state, copy_name(parameter). It must be made from the parameter before the first step,
// and whenever something else has written the parameter.
Graph keep_copies(Graph lowered);
std::string copy_name(std::string_view parameter);

}  // namespace tessera
