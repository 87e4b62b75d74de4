// SPDX-License-Identifier: Apache-2.0
// One GPU's rank in a communicator of NCCL.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "plugins/cuda/communicator/nccl.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// The communicator is non-blocking: a call begins work that a thread of the library finishes, and
// is_ready() says when. Any thread may ask or abort while the GPU's own thread makes calls.
class NcclRank {
 public:
  // Begins to connect. All `ranks` GPUs do so with one id. The context must be current.
  NcclRank(const Nccl& library, Context& context, int ranks, int rank, const nccl::UniqueId& id);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  const Nccl& library() const { return library_; }
  // call(comm) enqueues a collective, or a group of sends and receives. Nothing after abort().
  template <typename Call>
  void begin(const Call& call) {
    const std::lock_guard lock(mutex_);
    if (nccl::Comm* const comm = comm_) check(call(comm), "starting a collective");
  }
  // Whether what was begun is done, so that the stream has all of it; or it was aborted. Error if
  // the library reports one, also of a collective that is under way.
  bool is_ready();
  // When the GPU has run all collectives. The first only begins, as above.
  void finalize();
  void destroy();
  // Ends collectives under way, soon after it returns. Their results are of no use. A thread of its
  // own does so: the library's call ends the collectives first, but returns only when no CUDA graph
  // has any of them, and after a failure graphs may be kept until the process ends.
  void abort();

 private:
  void check(nccl::Result result, std::string_view what) const;

  const Nccl& library_;
  Context& context_;
  std::timed_mutex mutex_;
  std::atomic<nccl::Comm*> comm_ = nullptr;  // Null after the end.
};

}  // namespace tessera::cuda
