// SPDX-License-Identifier: Apache-2.0
// Maps the inputs of a program to the stages of a pipeline that hold them. Every device's graph
// lacks the inputs that its stage does not hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The stages that hold each input, ascending, by the input's name. All stages hold inputs without
// an entry. Equal on every device.
using StageHomes = std::map<std::string, std::vector<int64_t>, std::less<>>;

inline bool is_home(const StageHomes& homes, std::string_view input, int64_t stage) {
  const auto found = homes.find(input);
  return found == homes.end() || std::ranges::find(found->second, stage) != found->second.end();
}

// Returns the lowered graph of a device, in which inputs that are read and that only some stages
// hold (`homes`) come from the first of these stages, by an all-reduce over `stage` to which the
// others add zeros. On stages that do not hold them, the graph lacks these inputs and their
// updates.
Graph fetch_inputs(const Graph& lowered, const StageHomes& homes, const Mesh& mesh, int64_t device);

}  // namespace tessera
