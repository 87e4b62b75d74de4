// SPDX-License-Identifier: Apache-2.0
// A rendezvous point of some devices of this process: each lays its offer out and waits until all
// have. It moves no data. Waiting sleeps in the kernel, for there may be more devices than
// processors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

struct CollectiveInfo;

// What a member shows the others while it is in a collective.
struct PeerBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  const CollectiveInfo* info = nullptr;
};

class Rendezvous {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  enum class Outcome { kMet, kStopped, kTimedOut };

  // Members wait `spin` without sleeping first: worth it where each has a processor.
  Rendezvous(int members, std::chrono::microseconds spin);

  int members() const { return static_cast<int>(members_.size()); }
  // Written before a member comes and read after it has met the others, until it comes again.
  PeerBuffers& offer(int member) { return members_[static_cast<size_t>(member)].offer; }

  // A member comes; then it waits until all others have come as often, as often as it likes.
  // Between the two it touches nothing that they may still use.
  using Phase = uint32_t;
  Phase arrive(int member);
  Outcome wait(Phase phase, Deadline deadline) const;
  // Wakes all that wait, now and later.
  void stop();
  // How often a member has come.
  uint64_t times(int member) const;

 private:
  struct alignas(64) Member {
    PeerBuffers offer;
    std::atomic<uint64_t> times{0};
  };
  static constexpr uint32_t kStop = 1;  // A bit of word_; the rest counts the meetings held.

  std::vector<Member> members_;
  std::chrono::microseconds spin_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> word_{0};
};

}  // namespace tessera
