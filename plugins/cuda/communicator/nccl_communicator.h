// SPDX-License-Identifier: Apache-2.0
// The communicator of GPUs that NCCL connects: those of one process or of several, on one machine
// or many. The host only enqueues; a thread watches how far the GPUs are, reports which one is
// missing from a collective after the timeout, and then ends the collectives that wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/comm/cpu_communicator.h"
#include "plugins/cuda/communicator/nccl_rank.h"
#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/pinned_buffer.h"

namespace tessera::cuda {

class NcclCommunicator final : public Communicator {
 public:
  // Meets the other processes. Error if NCCL cannot be used, or if two devices are one GPU.
  explicit NcclCommunicator(CommunicatorOptions options);
  ~NcclCommunicator() override;

  std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node) override;
  void begin_run(int64_t device) override;
  void end_run(int64_t device, int program) override;
  bool agree_on_capture(int64_t device, bool captured) override;
  void require_running() const override;
  void stop(const std::string& reason) override;
  bool is_stopped() const override { return host_.is_stopped(); }
  std::string stalled(std::chrono::milliseconds least) const override {
    return host_.stalled(least);
  }
  int64_t bytes_sent(int64_t device) const override { return at(device).sent; }

  // The rest is for collective kernels. All are called by the device's thread.

  Context& context(int64_t device) const { return *at(device).context; }
  // The device's rank in its group; the group's devices connect when they first ask for it.
  std::shared_ptr<NcclRank> connect(int64_t device, const Node& node,
                                    const std::shared_ptr<const CollectiveInfo>& info);
  // A number for the collective, by which the GPU notes that it has arrived at it.
  uint32_t add_collective(int64_t device, const std::shared_ptr<const CollectiveInfo>& info);
  // The GPU arrives at a collective and leaves it, in the order of the stream.
  void arrive(int64_t device, uint32_t collective, CUstream stream);
  void leave(int64_t device, int64_t bytes_sent, CUstream stream);
  // Returns when all that the rank has begun is in the stream. Throws as running a kernel does.
  void wait_until_ready(int64_t device, const std::shared_ptr<const CollectiveInfo>& info,
                        NcclRank& rank);

 private:
  struct Progress {
    std::shared_ptr<Context> context;
    // How far the GPU is, which it writes into the host's memory: the collective that it arrived at
    // last, and whether it has left that.
    std::shared_ptr<PinnedBuffer> position;
    uint32_t current = 0;  // What the last collective wrote; only used by the device's thread.
    std::atomic<int64_t> joined = 0;  // The number of the collective that was enqueued last.
    std::atomic<int64_t> runs = 0;  // Runs of programs: a replayed graph writes the same position.
    std::atomic<int64_t> sent = 0;  // Bytes.
    // Only used by the device's thread: how many collectives the run has enqueued so far, what
    // `sent` was when it began, and what each program sends in a run.
    int64_t enqueued = 0, sent_before = 0;
    std::map<int, int64_t> sent_by;
    std::vector<std::shared_ptr<const CollectiveInfo>> collectives;   // By number; under mutex_.
    std::map<std::vector<int64_t>, std::shared_ptr<NcclRank>> ranks;  // By group; under mutex_.
    // What the watching thread saw last.
    uint32_t seen_position = 0;
    int64_t seen_runs = 0;
    WaitDeadline deadline;
  };

  Progress& at(int64_t device) const {
    return *progress_[static_cast<size_t>(device - first_device())];
  }
  void require_different_gpus() const;
  nccl::UniqueId share_id(int64_t device, const Node& node, int64_t ranks);
  void gather(int64_t device, const Node& like, std::span<const uint32_t> own,
              std::span<uint32_t> all);
  static void write(const Progress& it, uint32_t position, CUstream stream);
  std::vector<std::shared_ptr<NcclRank>> ranks() const;
  std::vector<int64_t> missing(int64_t device, const CollectiveInfo& info) const;
  void keep_waiting(int64_t device, const CollectiveInfo& info, WaitDeadline& deadline);
  void watch();
  void look_at(int64_t device);
  void look_for_errors();
  void fail_run(const std::string& report);
  void end_ranks() const;

  const Nccl& library_;
  CpuCommunicator host_;  // Positions of the devices, reports, and the first messages.
  std::vector<std::unique_ptr<Progress>> progress_;  // By local device.
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;  // Under mutex_.
  std::string failure_;  // Why the run failed; under mutex_.
  std::thread watching_;
};

// The kernel of a collective node; defined in nccl_kernel.cc. The communicator must outlive it.
// Error for a dtype that cannot be reduced.
std::unique_ptr<Kernel> make_nccl_kernel(NcclCommunicator& communicator, int64_t device,
                                         const Graph& graph, const Node& node);

// NCCL's arrays are those of the ranks one after another; others are copied through scratch.
int64_t nccl_scratch_bytes(const CollectiveInfo& info);

}  // namespace tessera::cuda
