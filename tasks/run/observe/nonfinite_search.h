// SPDX-License-Identifier: Apache-2.0
// Runs a step launch by launch and finds the first value that is not finite: NaN or infinite
// (docs/replay.md, "Where is the NaN?").
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "tasks/run/observe/launch_list.h"

namespace tessera {

class NonfiniteSearch {
 public:
  // Searches runs on these devices, which outlive it. It outlives the executor.
  explicit NonfiniteSearch(const std::vector<Device*>& devices);
  ~NonfiniteSearch();
  NonfiniteSearch& operator=(NonfiniteSearch&&) = delete;  // Neither copied nor moved.

  // The devices that the executor runs on: wrappers of the same devices that can be inspected.
  const std::vector<Device*>& in_order() const { return in_order_; }

  // Calls `step`, which runs the program once. The text names the first launch that writes a value
  // that is not finite, with its layer, its source line and the ranges of what it reads and writes;
  // "" if all is finite. A collective call; the text is the same in all processes.
  std::string find(Executor& executor, const Mesh& mesh, int program, ProcessGroup& processes,
                   const std::function<void()>& step);

 private:
  class Watch;                 // Watches one device.
  std::deque<Watch> watches_;  // The devices refer to them.
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> in_order_;
};

}  // namespace tessera
