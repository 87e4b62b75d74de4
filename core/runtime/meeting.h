// SPDX-License-Identifier: Apache-2.0
// A meeting point of some devices of this process: each lays its offer out and waits until all
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
struct Offer {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  const CollectiveInfo* info = nullptr;
};

class Meeting {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  enum class Outcome { kMet, kStopped, kTimedOut };

  // Members wait `spin` without sleeping first: worth it where each has a processor.
  Meeting(int members, std::chrono::microseconds spin);

  int members() const { return static_cast<int>(members_.size()); }
  // Written before a member comes and read after it has met the others, until it comes again.
  Offer& offer(int member) { return members_[static_cast<size_t>(member)].offer; }

  // A member comes; then it waits until all others have come as often, as often as it likes.
  // Between the two it touches nothing that they may still use.
  using Ticket = uint32_t;
  Ticket come(int member);
  Outcome wait(Ticket ticket, Deadline deadline) const;
  // Wakes all that wait, now and later.
  void stop();
  // How often a member has come.
  uint64_t times(int member) const;

 private:
  struct alignas(64) Member {
    Offer offer;
    std::atomic<uint64_t> times{0};
  };
  static constexpr uint32_t kStop = 1;  // A bit of word_; the rest counts the meetings held.

  std::vector<Member> members_;
  std::chrono::microseconds spin_;
  alignas(64) std::atomic<int> come_{0};
  alignas(64) std::atomic<uint32_t> word_{0};
};

}  // namespace tessera
