// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the time of a step that need no trace on a candidate's mesh: from what the model
// multiplies, traced on one device. docs/search.md has the argument for each bound;
// tests/tasks/search/bounds_test.cc compares them with plans.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/graph/graph.h"
#include "tasks/hardware/hardware.h"
#include "tasks/search/recipe.h"
#include "tasks/search/space.h"

namespace tessera {

// Seconds of the products of a global batch on one device that has the hardware's best product.
struct ModelWork {
  // One direction of the stacked layers.
  struct Pass {
    double all = 0.0;
    double chain = 0.0;  // Part between what a layer receives and what it hands on.
  };
  double all = 0.0;     // With what is outside the layers.
  double layers = 0.0;  // Both passes.
  Pass forward, backward;
  double after_layers = 0.0;  // What the last stage of a pipeline computes, such as the softmax.
};

// Its devices together multiply at least as much as one device would alone, with the recomputation
// of the remat policy. In a pipeline each stage has an equal share of the layers.
class WorkBounds {
 public:
  // All must outlive it.
  WorkBounds(const Configure& configure, const Hardware& hardware, const Recipe& recipe)
      : configure_(configure), hardware_(hardware), recipe_(recipe) {}

  double seconds(const Candidate& candidate);
  // Of a pipeline: what its last stage needs at least beside the time of its layers: to wait for
  // the first microbatch, for what comes after the layers, and until the gradient of the last
  // microbatch has reached the first stage. 0 without a pipeline.
  double seconds_beside_layers(const Candidate& candidate);
  // Candidates that differ only in policies of one class have equal steps: the policies save the
  // same values. The name is that of the first policy asked for.
  const std::string& policy_class(int64_t microbatches, const std::string& policy);

 private:
  struct OfPolicy {
    ModelWork work;
    std::string same_as;
  };
  const OfPolicy& of(int64_t microbatches, const std::string& policy);

  const Configure& configure_;
  const Hardware& hardware_;
  const Recipe& recipe_;
  std::map<int64_t, Graph> traced_;  // By the number of microbatches, on one device.
  std::map<std::pair<int64_t, std::string>, OfPolicy> known_;
  std::map<std::pair<int64_t, std::string>, std::string>
      first_with_;  // By a text of what is saved.
};

}  // namespace tessera
