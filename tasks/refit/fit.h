// SPDX-License-Identifier: Apache-2.0
// Fits a hardware file to what launches of a run took: the shares of the peaks that products,
// copies and links reach, the latencies and the overhead of a launch, so that the roofline
// (tasks/plan/roofline.h) predicts these launches as well as it can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "tasks/hardware/hardware.h"
#include "tasks/refit/matched_launches.h"

namespace tessera {

// A field of a hardware file that was fitted.
struct FittedField {
  std::string name;  // "efficiency.products"
  double before = 0.0, after = 0.0;
  int64_t types = 0;  // Of launches that it was fitted to.
};

struct FittedHardware {
  Hardware hardware;
  std::vector<FittedField> fields;
  int64_t shapes = 0;  // Of products that have a measured point of their own.
};

// From `start`, whose peaks it keeps. Each field, a curve as a whole, is scaled to the least sum of
// |log(predicted / measured)| over types of launches, each with its part of the measured time as
// weight, one field after the other, three times: least absolute deviations, which a few slow
// launches do not move. A field that no launch depends on keeps its value. Then the shapes of
// products that took most time become points of the curve of products, unless the file has tiles.
// `gap`: seconds between launches.
FittedHardware fit_hardware(const Hardware& start, const std::vector<MatchedLaunches>& launches,
                            double gap, const Mesh& mesh);

}  // namespace tessera
