// SPDX-License-Identifier: Apache-2.0
// A barrier of the devices of one process that take part in a collective. Between two barriers the
// devices read each other's buffers. Waiting threads sleep in the kernel, since there may be more
// devices than processors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

struct CollectiveInfo;

// The buffers of a device in the current collective.
struct PeerBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  const CollectiveInfo* info = nullptr;
};

class Rendezvous {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  enum class Outcome { kComplete, kStopped, kTimedOut };

  // Waiting threads spin for `spin` before they sleep; useful if each has a processor.
  Rendezvous(int members, std::chrono::microseconds spin);

  int members() const { return static_cast<int>(members_.size()); }
  // Written by the member before it arrives; read by the others between the barriers.
  PeerBuffers& buffers(int member) { return members_[static_cast<size_t>(member)].buffers; }

  // One barrier is an arrive() and then any number of wait()s, until one returns kComplete: all
  // members have arrived.
  using Phase = uint32_t;
  Phase arrive(int member);
  Outcome wait(Phase phase, Deadline deadline) const;
  // Makes all current and later waits return kStopped.
  void stop();
  // How often the member has arrived.
  uint64_t arrivals(int member) const;

 private:
  struct alignas(64) Member {
    PeerBuffers buffers;
    std::atomic<uint64_t> arrivals{0};
  };
  static constexpr uint32_t kStop = 1;  // A bit of word_; the others count completed barriers.

  std::vector<Member> members_;
  std::chrono::microseconds spin_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> word_{0};
};

}  // namespace tessera
