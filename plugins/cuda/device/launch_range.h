// SPDX-License-Identifier: Apache-2.0
// Names launches for NVIDIA's profilers, which show the kernels that are enqueued in a range.
#pragma once

#include "core/graph/graph.h"

namespace tessera::cuda {

// An NVTX range, "forward lm.x_layers[0].ffn: einsum", around the enqueueing of a launch. `node` is
// null for a step that is one CUDA graph. It does nothing unless a profiler is attached.
class LaunchRange {
 public:
  explicit LaunchRange(const Node* node);
  ~LaunchRange();
  LaunchRange(const LaunchRange&) = delete;
  LaunchRange& operator=(const LaunchRange&) = delete;
};

}  // namespace tessera::cuda
