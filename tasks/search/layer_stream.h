// SPDX-License-Identifier: Apache-2.0
// The least time that a loop over layers takes on a device: its kernels run one after another, and
// a kernel runs when what it reads is there. Collectives take their time, but as many of them as
// like at once, and each as soon as its operands are there. So this is a lower bound of the
// simulation (tasks/plan/simulation.h), whatever overlap() decides.
#pragma once

#include <unordered_map>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/hardware/hardware.h"
#include "tasks/search/value_origins.h"

namespace tessera {

// Which launches count.
enum class Counted {
  kAll,     // Those that overlap() may not move out of the loop.
  kCommon,  // Of them those of ValueOrigins::is_common().
};

class LayerStream {
 public:
  // All must outlive it.
  LayerStream(const ValueOrigins& origins, const Mesh& mesh, const Hardware& hardware)
      : origins_(origins), mesh_(mesh), hardware_(hardware) {}

  // Of all iterations of a `repeat` node: from the moment when its first kernel may run until its
  // last one ends.
  double seconds(const Node& repeat, Counted counted);

 private:
  struct Launch {
    enum class Kind { kNothing, kView, kKernel, kCollective };
    const Node* node = nullptr;
    Kind kind = Kind::kNothing;
    double seconds = 0.0;
  };
  Launch launch_of(const Graph& graph, const Node& node, Counted counted) const;
  double kernel_seconds(const Graph& graph, Counted counted) const;

  const ValueOrigins& origins_;
  const Mesh& mesh_;
  const Hardware& hardware_;
};

}  // namespace tessera
