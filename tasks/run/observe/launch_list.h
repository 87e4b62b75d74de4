// SPDX-License-Identifier: Apache-2.0
// The launches of a step's plan, with their numbers and places. Copies and loop indices that memory
// planning adds are left out: they depend on which buffers a device's kernels may overwrite, so
// that two kinds of devices have different ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/compile/memory/step_program.h"

namespace tessera {

struct ListedLaunch {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  int64_t number = 0;                     // From 1, in the order of the plan.
  int64_t iteration = 1, iterations = 1;  // The iteration of the node: loops are unrolled.
  std::string path;  // Path of its layer, with its index in a loop over layers.
};

// "launch 19 of 120: einsum [forward]", of a list of so many.
std::string launch_line(const ListedLaunch& launch, size_t launches);
// "in lm.x_layers[1].ffn, layers/feed_forward/feed_forward.cc:41"
std::string place_line(const ListedLaunch& launch);
// "0 (lm.x_layers[1].ffn.up)"
std::string operand_name(const ListedLaunch& launch, size_t input);

class LaunchList {
 public:
  // The plan outlives the list.
  explicit LaunchList(const StepProgram& plan);

  const std::vector<ListedLaunch>& launches() const { return launches_; }
  const ListedLaunch& launch(int64_t number) const {
    return launches_[static_cast<size_t>(number - 1)];
  }
  // The launch that is the `index`-th of its kind in a run; for a wait, its start. Null for
  // launches that are left out.
  const ListedLaunch* find(LaunchKind kind, int64_t index) const;
  int64_t left_out() const { return left_out_; }

  // A line for each launch with all that its results depend on except its operands. Programs with
  // the same lines compute the same.
  std::vector<std::string> identity() const;

 private:
  std::vector<ListedLaunch> launches_;
  std::array<std::vector<int64_t>, 3> numbers_;  // By kind; 0: left out.
  int64_t left_out_ = 0;
};

}  // namespace tessera
