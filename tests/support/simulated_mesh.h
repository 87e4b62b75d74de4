// SPDX-License-Identifier: Apache-2.0
// A mesh of devices simulated in one thread: a traced graph is lowered for each device, and all
// graphs are interpreted in step in double precision, including collectives. Tests of lowering use
// it as the reference. The runtime's collectives are not used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/compile/spmd/reshard_plan.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The part of a global array that a device holds. For a partial sum, the first device of the group
// has the array and the others have zeros; for a partial maximum, all have the array.
std::vector<double> shard_of(const std::vector<double>& global, const Type& type, const Mesh& mesh,
                             int64_t device);

// The global array from each device's part; partials are reduced. Error if replicas differ.
std::vector<double> assembled(const std::vector<std::vector<double>>& parts, const Type& type,
                              const Mesh& mesh);

class SimulatedMesh {
 public:
  // Lowers `traced` for every device. Error if the graphs differ in structure.
  SimulatedMesh(const Graph& traced, const Mesh& mesh, const LinkCosts& costs = {});

  // Every output by name, from inputs by name, all as global arrays. Replicas must be bitwise
  // equal.
  std::map<std::string, std::vector<double>> run(const ReferenceInputs& inputs) const;

  const Graph& lowered(int64_t device) const { return graphs_[static_cast<size_t>(device)]; }

 private:
  const Graph& traced_;
  Mesh mesh_;
  std::vector<Graph> graphs_;  // By device.
};

}  // namespace tessera
