// SPDX-License-Identifier: Apache-2.0
// The facts about kernels that memory planning needs, and the kinds of their launches.
#pragma once

#include <cstdint>
#include <functional>

#include "core/graph/graph.h"

namespace tessera {

// A collective may be split into a start and a wait, between which other launches run.
enum class LaunchKind { kRun, kStart, kWait };

using LaunchId = Id<struct LaunchTag>;

// Properties of kernels for planning. Unset: no scratch memory, and outputs may not overwrite
// inputs.
struct KernelFacts {
  std::function<int64_t(const Graph&, const Node&)> scratch_bytes;
  std::function<bool(const Graph&, const Node&, int64_t output, int64_t input)> may_overwrite;
};

// Returns the seconds of one launch of a node, equal on all devices of a stage. Unset: not known.
using LaunchSeconds = std::function<double(const Graph&, const Node&)>;

}  // namespace tessera
