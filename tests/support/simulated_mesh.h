// SPDX-License-Identifier: Apache-2.0
// A mesh of devices in one thread: a traced graph is lowered for each of them, and all are
// interpreted in step in double precision, with the collectives done between them. The oracle for
// what lowering must mean; the runtime's collectives are tested against devices, not here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/backend/reference/interpreter.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/spmd/reshard_plan.h"

namespace tessera {

// The part of a global array that a device holds; of a partial sum or maximum, its term: what the
// first device of those holds is the array, the others have zeros (the array, for a maximum).
std::vector<double> shard_of(const std::vector<double>& global, const Type& type, const Mesh& mesh,
                             int64_t device);

// The global array from each device's part, partials put together. Error if replicas differ.
std::vector<double> assembled(const std::vector<std::vector<double>>& parts, const Type& type,
                              const Mesh& mesh);

class SimulatedMesh {
 public:
  // Lowers `traced` for every device; Error where their graphs differ in structure.
  SimulatedMesh(const Graph& traced, const Mesh& mesh, const LinkCosts& costs = {});

  // Every output by name, as global arrays, from global inputs by name. Replicas must agree to the
  // last bit.
  std::map<std::string, std::vector<double>> run(const ReferenceInputs& inputs) const;

  const Graph& lowered(int64_t device) const { return graphs_[static_cast<size_t>(device)]; }

 private:
  const Graph& traced_;
  Mesh mesh_;
  std::vector<Graph> graphs_;  // By device.
};

}  // namespace tessera
