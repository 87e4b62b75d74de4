// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the time and the memory of a candidate's plan, which are cheaper than the plan.
// --search plans no candidate whose bound is not better than a plan that it knows. docs/search.md
// has the argument for each bound; tests/tasks/search/bounds_test.cc compares them with plans.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "tasks/hardware/hardware.h"
#include "tasks/search/recipe.h"
#include "tasks/search/space.h"

namespace tessera {

// Before anything is traced on the candidate's mesh. Its devices together multiply at least as much
// as one device would alone, with the recomputation of the remat policy, and none of them is faster
// than the hardware's best product. In a pipeline only the layers count, which all stages share
// equally.
class WorkBounds {
 public:
  // All must outlive it.
  WorkBounds(const Configure& configure, const Hardware& hardware)
      : configure_(configure), hardware_(hardware) {}

  double seconds(const Candidate& candidate);
  // Candidates that differ only in policies of one class have equal steps: the policies save the
  // same values. The name is that of the first policy asked for.
  const std::string& policy_class(int64_t microbatches, const std::string& policy);

 private:
  struct Work {
    double all = 0.0, layers = 0.0;  // Seconds on one device.
  };
  struct OfPolicy {
    Work work;
    std::string same_as;
  };
  const OfPolicy& of(int64_t microbatches, const std::string& policy);

  const Configure& configure_;
  const Hardware& hardware_;
  std::map<int64_t, Graph> traced_;  // By the number of microbatches, on one device.
  std::map<std::pair<int64_t, std::string>, OfPolicy> known_;
  std::map<std::pair<int64_t, std::string>, std::string>
      first_with_;  // By a text of what is saved.
};

// The bytes of parameters and optimizer state that the layout leaves on each device, of those that
// all stages hold. Error if a size is not divisible.
int64_t stored_bytes(const Recipe& recipe, const Layout& layout);

// What the program of a training step says before its memory is planned.
struct ProgramBounds {
  double compute = 0.0;    // Seconds of all launches that are not collectives,
  double products = 0.0;   // and of those among them that multiply matrices.
  double links = 0.0;      // Of collectives within slices, without latencies,
  double network = 0.0;    // and between slices.
  int64_t bytes = 0;       // Of memory.
  int64_t launches = 0;    // Of all stages.
  double seconds() const;  // Of the step.
};

// Compiles the training step for the first device of the candidate's mesh. Error if the model, the
// batch or the pipeline does not fit it.
ProgramBounds program_bounds(const ExperimentConfig& config, Device& device,
                             const Hardware& hardware);

// The bytes of values that are in memory at one time, at least, beside the inputs: at a moment
// between two nodes all values that an earlier node made and a later one reads. Views, and what may
// share the memory of another value, do not count. The graph is that of one device.
int64_t live_bytes(const Graph& graph);

// Candidates with equal texts multiply matrices of equal local sizes: those of one set of rules for
// activations on meshes that differ in how `replica` and `data` share the devices of a batch, and
// in slices. Where a weight is at rest does not matter, since it is gathered before it is used.
std::string products_key(const Candidate& candidate);

}  // namespace tessera
