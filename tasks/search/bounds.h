// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the time and the memory of a candidate's plan from its program, which is compiled
// but not planned, and what these say about other candidates. --search plans no candidate whose
// bound is not better than a plan that it knows. docs/search.md has the argument for each bound;
// tests/tasks/search/bounds_test.cc compares them with plans. work_bounds.h has those before a
// program is compiled.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "tasks/hardware/hardware.h"
#include "tasks/search/recipe.h"
#include "tasks/search/space.h"

namespace tessera {

// The bytes of parameters and optimizer state that the layout leaves on each device, of those that
// all stages hold. Error if a size is not divisible.
int64_t stored_bytes(const Recipe& recipe, const Candidate& candidate);

// What the program of a training step says before its memory is planned. Seconds of one device; in
// a pipeline of the first stage, whose layers are those of each stage.
struct ProgramBounds {
  bool is_pipeline = false;
  double compute = 0.0;          // All launches that are not collectives.
  double links = 0.0;            // Collectives within slices, without latencies,
  double network = 0.0;          // and between slices.
  double layer_products = 0.0;   // Matrix products in loops over layers,
  double other_products = 0.0;   // and elsewhere.
  double layers = 0.0;           // Loops over layers (layer_stream.h).
  double common_layers = 0.0;    // The parts of these that are the same in each program with the
  double common_products = 0.0;  // same local activations (ValueOrigins::is_common()).
  int64_t bytes = 0;             // Of memory.
  int64_t common_bytes = 0;      // Of activations, the same in these programs.
  int64_t launches = 0;          // Of all stages.

  // Of the step. `beside_layers` is WorkBounds::seconds_beside_layers().
  double seconds(double beside_layers) const;
};

// Compiles the training step for the first device of the candidate's mesh. Error if the model, the
// batch or the pipeline does not fit it. May be called by several threads, each with its device.
ProgramBounds program_bounds(const ExperimentConfig& config, Device& device,
                             const Hardware& hardware);

// What the programs of some candidates say about others.
class SharedBounds {
 public:
  void add(const Candidate& candidate, const ProgramBounds& bounds, double beside_layers);

  // Lower bounds; 0 where nothing is known.
  double seconds(const Candidate& candidate) const;
  int64_t activation_bytes(const Candidate& candidate) const;  // Beside what is stored.

 private:
  struct Common {
    double seconds = 0.0;
    int64_t bytes = 0;
  };
  std::map<std::string, double> products_;  // By products_key().
  std::map<std::string, Common> common_;    // By common_key().
};

// Candidates with equal texts multiply matrices of equal local sizes: those of one set of rules for
// activations on meshes that differ in how `replica` and `data` share the devices of a batch, and
// in slices. Where a weight is at rest does not matter, since it is gathered before it is used.
std::string products_key(const Candidate& candidate);

// Candidates with equal texts have programs of one structure with equal local activations: also the
// rules for weights are equal, the slices of each axis that does not share the batch, and whether
// `replica` and `data` have several devices.
std::string common_key(const Candidate& candidate);

}  // namespace tessera
