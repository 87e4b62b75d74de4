// SPDX-License-Identifier: Apache-2.0
// A small model trained on a mesh of CPU devices, and the numbers it gave: the same experiment must
// give the same ones on every mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/spmd_case.h"

namespace tessera {

using NamedFloats = std::map<std::string, std::vector<float>>;  // By parameter path.

// What a run gave. Arrays are whole, whatever the mesh.
struct SpmdRun {
  NamedFloats weights;                // Before the first step.
  NamedFloats gradients;              // Of the first step.
  NamedFloats trained;                // Weights after the last step.
  std::vector<double> losses, norms;  // Of each step.
  std::vector<int64_t> bytes_sent;    // By each device, in all steps.
  int64_t planned_bytes = 0;          // Of a device and step, by the plan; permutes apart…
  int64_t planned_moves = 0;          // … which move the shards of some devices, not of all.
};

// Called by each device before it joins a collective; see CommunicatorOptions.
using BeforeJoining = std::function<void(int64_t device, int64_t number)>;

SpmdRun run_spmd(const SpmdCase& trial, const BeforeJoining& before_joining = {});

// How far a run is from another: relative to the other's, and of gradients by their worst
// parameter.
struct SpmdDifference {
  bool same_weights = false;  // Initial ones, bit for bit.
  double loss = 0.0, norm = 0.0;
  double gradient = 0.0;   // ‖difference‖ / max(‖gradient‖, 1e-6 of the global norm).
  std::string worst;       // The parameter it is of.
  double vanishing = 0.0;  // ‖gradient‖ / global norm where mathematics says zero; of both runs.
  double curve = 0.0;      // Of losses, the worst step's.
};
double gradient_norm(const std::vector<float>& gradient);
double gradient_distance(const std::vector<float>& a, const std::vector<float>& b);
bool same_bits(const NamedFloats& a, const NamedFloats& b);
SpmdDifference difference(const SpmdRun& got, const SpmdRun& expected);

// The run of the case on one device; made once a case.
const SpmdRun& one_device_run(const SpmdCase& trial);

// REQUIREs of an f32 run what "the same numbers" means.
void require_same_numbers(const SpmdCase& trial);

}  // namespace tessera
