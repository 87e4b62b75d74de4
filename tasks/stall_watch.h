// SPDX-License-Identifier: Apache-2.0
// Says what a process waits for when it is told to stop while it waits for another. A launcher that
// sees one process die tells the others to stop, and kills them a moment later: this is their only
// chance to say who is missing, and from what.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/runtime/fabric.h"
#include "core/runtime/processes.h"
#include "tasks/stop_signal.h"

namespace tessera {

class StallWatch {
 public:
  // Watches on a thread of its own while it lives. `fabric` may be null.
  StallWatch(const StopSignal& stop, const Processes& processes, const Fabric* fabric);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void watch();

  const StopSignal& stop_;
  const Processes& processes_;
  const Fabric* fabric_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace tessera
