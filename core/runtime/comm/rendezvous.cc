// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/rendezvous.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace tessera {
namespace {

using std::chrono::steady_clock;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Returns once `word` differs from `old` or the deadline has passed; may return earlier.
void sleep_on(const std::atomic<uint32_t>& word, uint32_t old, steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::nanoseconds>(deadline - steady_clock::now());
  if (left.count() <= 0) return;
  constexpr int64_t kSecond = 1000000000;
  const timespec timeout{.tv_sec = static_cast<time_t>(left.count() / kSecond),
                         .tv_nsec = static_cast<long>(left.count() % kSecond)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, &timeout, nullptr, 0);
}

void wake_all(const std::atomic<uint32_t>& word) {
  constexpr int kAll = 1 << 30;
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, kAll, nullptr, nullptr, 0);
}

}  // namespace

Rendezvous::Rendezvous(int members, std::chrono::microseconds spin)
    : members_(static_cast<size_t>(members)), spin_(spin) {}

Rendezvous::Phase Rendezvous::arrive(int member) {
  const uint32_t before = word_.load(std::memory_order_acquire) & ~kStop;
  members_[static_cast<size_t>(member)].arrivals.fetch_add(1, std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members()) {
    arrived_.store(0, std::memory_order_relaxed);
    word_.fetch_add(2, std::memory_order_acq_rel);
    wake_all(word_);
  }
  return before;
}

Rendezvous::Outcome Rendezvous::wait(Phase phase, Deadline deadline) const {
  const auto spin_until =
      spin_.count() > 0 ? steady_clock::now() + spin_ : steady_clock::time_point::min();
  while (true) {
    const uint32_t now = word_.load(std::memory_order_acquire);
    if ((now & ~kStop) != phase) return Outcome::kComplete;
    if (now & kStop) return Outcome::kStopped;
    const auto time = steady_clock::now();
    if (time >= deadline) return Outcome::kTimedOut;
    if (time >= spin_until) sleep_on(word_, now, deadline);
  }
}

void Rendezvous::stop() {
  word_.fetch_or(kStop, std::memory_order_acq_rel);
  wake_all(word_);
}

uint64_t Rendezvous::arrivals(int member) const {
  return members_[static_cast<size_t>(member)].arrivals.load(std::memory_order_relaxed);
}

}  // namespace tessera
