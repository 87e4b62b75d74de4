// SPDX-License-Identifier: Apache-2.0
// The launches of a trace matched to the nodes of a program, by type and line of layer code. The
// order may differ: it depends on how collectives are overlapped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/runtime/executor/executor.h"
#include "tasks/refit/traced_steps.h"

namespace tessera {

// All launches of one type, with a node that has it.
struct MatchedLaunches {
  std::string type;
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::vector<double> seconds;  // Of each launch, rising.

  double quantile(double part) const;
  double median() const { return quantile(0.5); }
};

// Of a list that is not empty, which it sorts.
double median_of(std::vector<double> values);

// By type, in the order of the program. A collective takes what it takes on the device that comes
// to it last, since the others wait in it; sends and receives, which always wait, are left out.
// Error with the first launch that differs if the steps are not of these programs.
std::vector<MatchedLaunches> match_launches(const std::vector<TracedStep>& steps,
                                            const std::vector<StagePlan>& stages, const Mesh& mesh,
                                            const std::string& where);

}  // namespace tessera
