// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/nccl_rank.h"

#include <chrono>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera::cuda {

NcclRank::NcclRank(const Nccl& library, Context& context, int ranks, int rank,
                   const nccl::UniqueId& id)
    : library_(library), context_(context) {
  nccl::Config config;
  config.blocking = 0;
  nccl::Comm* comm = nullptr;
  check(library.ncclCommInitRankConfig(&comm, ranks, id, rank, &config),
        fmt::format("connecting {} GPUs", ranks));
  comm_ = comm;
}

NcclRank::~NcclRank() {
  if (nccl::Comm* const comm = comm_) library_.ncclCommAbort(comm);
}

void NcclRank::check(nccl::Result result, std::string_view what) const {
  library_.check(result, comm_, fmt::format("GPU {}, {}", context_.ordinal(), what));
}

bool NcclRank::is_ready() {
  const std::lock_guard lock(mutex_);
  nccl::Comm* const comm = comm_;
  if (comm == nullptr) return true;
  nccl::Result state = nccl::ncclSuccess;
  check(library_.ncclCommGetAsyncError(comm, &state), "asking for its state");
  check(state, "communicating");
  return state != nccl::ncclInProgress;
}

void NcclRank::finalize() {
  const std::lock_guard lock(mutex_);
  if (nccl::Comm* const comm = comm_) check(library_.ncclCommFinalize(comm), "ending");
}

void NcclRank::destroy() {
  const std::lock_guard lock(mutex_);
  if (nccl::Comm* const comm = comm_.exchange(nullptr))
    check(library_.ncclCommDestroy(comm), "ending");
}

void NcclRank::abort() {
  // The GPU's thread may be inside a call that does not return before this one: it then holds the
  // lock, and the library allows the two calls together.
  const std::unique_lock lock(mutex_, std::chrono::seconds(1));
  nccl::Comm* const comm = comm_.exchange(nullptr);
  if (comm == nullptr) return;
  const auto end = [&library = library_, comm] { library.ncclCommAbort(comm); };
  try {
    start_thread(end).detach();
  } catch (const Error&) {
    end();
  }
}

}  // namespace tessera::cuda
