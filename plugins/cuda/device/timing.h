// SPDX-License-Identifier: Apache-2.0
// Times work on a GPU, in memory outside the arena.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/devices/device.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// Memory for a trial, freed by the destructor.
class TrialMemory {
 public:
  explicit TrialMemory(Context& context) : context_(context) {}
  ~TrialMemory();
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

  // Null, and complete() is false, if the GPU has no room for it.
  CUdeviceptr allocate(int64_t bytes);
  bool complete() const { return complete_; }

 private:
  Context& context_;
  std::vector<CUdeviceptr> memory_;
  bool complete_ = true;
};

// Times what is enqueued on its stream. The L2 cache holds none of the operands when a timed call
// begins: in a step, other work has used the cache since they were written.
class WorkTimer {
 public:
  explicit WorkTimer(Context& context);

  bool has_memory() const { return memory_.complete(); }
  CUstream stream() const;
  void synchronize() const { stream_->synchronize(); }
  // The least of several times in milliseconds, after one call that is not timed. nullopt if
  // `work`, which enqueues on stream(), returns false.
  std::optional<float> least_time(const std::function<bool()>& work) const;

 private:
  Context& context_;
  std::unique_ptr<Stream> stream_;
  TrialMemory memory_;
  int64_t cold_bytes_;  // Size of the L2 cache.
  CUdeviceptr cold_ = 0;
};

}  // namespace tessera::cuda
