// SPDX-License-Identifier: Apache-2.0
// Fits a hardware file to measured times of launches, from a calibration or from a traced run: the
// shares of the peaks that kernels and links reach, the latencies and the overhead of a launch, so
// that the roofline (tasks/planner/prices/roofline.h) predicts these launches as well as it can.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

struct MeasuredLaunch {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  double seconds = 0.0;  // With the gap before the next, except for collectives.
  double weight = 1.0;   // Factor on its error.
};

// A figure of a hardware file that was fitted.
struct FittedField {
  std::string name;  // "efficiency.products"
  double before = 0.0, after = 0.0;
  int64_t types = 0;  // Number of launch types that it was fitted to.
};

// Minimizes the sum of weight * |log(predicted / measured)| over the launches by coordinate
// descent: each figure is scaled in turn, three times over; the points of a curve are scaled
// together. Least absolute deviations are robust to a few slow launches. Only figures whose names
// begin with one of `prefixes` are fitted; without prefixes, all are. A figure that no launch
// depends on keeps its value, and so do the peaks.
std::vector<FittedField> fit_hardware(Hardware& hardware,
                                      const std::vector<MeasuredLaunch>& launches, const Mesh& mesh,
                                      const std::vector<std::string_view>& prefixes = {});

// Gives the shapes of products, those with the most weight first, points of their own in the curve.
// Returns how many. A GPU's model of tiles is kept.
int64_t add_product_points(Hardware& hardware, std::vector<MeasuredLaunch> launches,
                           const Mesh& mesh);

}  // namespace tessera
