// SPDX-License-Identifier: Apache-2.0
// Trains a small model on a mesh of CPU devices and compares the results, which must be the same on
// every mesh.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/spmd_case.h"
#include "tests/support/train_trial.h"

namespace tessera {

using NamedFloats = std::map<std::string, std::vector<float>>;  // By parameter path.

// The results of a run. Arrays are global on any mesh.
struct SpmdRun {
  NamedFloats weights;                // Before the first step.
  NamedFloats gradients;              // Gradients of the first step.
  NamedFloats trained;                // Weights after the last step.
  std::vector<double> losses, norms;  // One per step.
  bool sent_as_planned = false;       // TrainTrial::sent_as_planned().
};

SpmdRun run_spmd(const SpmdCase& trial, const BeforeJoining& before_joining = {});

// Relative differences of a run from another. For gradients, the parameter with the largest
// difference counts.
struct SpmdDifference {
  bool same_weights = false;  // Initial weights are bitwise equal.
  double loss = 0.0, norm = 0.0;
  double gradient = 0.0;   // ‖difference‖ / max(‖gradient‖, 1e-6 of the global norm).
  std::string worst;       // The parameter with this difference.
  double vanishing = 0.0;  // ‖gradient‖ / global norm of gradients that are exactly zero.
  double curve = 0.0;      // The largest difference of the losses of any step.
};
double gradient_norm(const std::vector<float>& gradient);
double gradient_distance(const std::vector<float>& a, const std::vector<float>& b);
bool same_bits(const NamedFloats& a, const NamedFloats& b);
SpmdDifference difference(const SpmdRun& got, const SpmdRun& expected);

// The run of the case on one device; cached per case.
const SpmdRun& one_device_run(const SpmdCase& trial);

// REQUIREs that an f32 run has the same numbers, within rounding.
void require_same_numbers(const SpmdCase& trial);

// REQUIREs that the case, computed in bf16, is as close to f32 as one device's bf16 is. bf16 rounds
// to 8 bits, so each of about thirty operations adds a relative error of up to 2^-9, a different
// one where a product is summed in parts: two meshes differ from each other as much as each differs
// from f32. Returns the differences from one device that computes in bf16 too.
SpmdDifference require_near_in_bf16(SpmdCase trial);

}  // namespace tessera
