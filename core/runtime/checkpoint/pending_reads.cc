// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/pending_reads.h"

#include <functional>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace

void PendingReads::begin(std::vector<std::span<const std::byte>> spans) {
  const std::lock_guard lock(mutex_);
  CHECK(finished_ == spans_.size(), "{} of {} spans were read", finished_, spans_.size());
  spans_ = std::move(spans);
  finished_ = 0;
}

void PendingReads::finish_next() {
  {
    const std::lock_guard lock(mutex_);
    CHECK(finished_ < spans_.size());
    ++finished_;
  }
  changed_.notify_all();
}

void PendingReads::finish_all() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = spans_.size();
  }
  changed_.notify_all();
}

void PendingReads::await_number(std::unique_lock<std::mutex>& lock, size_t number) {
  if (finished_ >= number) return;
  if (waiting_++ == 0) since_ = Clock::now();
  changed_.wait(lock, [&] { return finished_ >= number; });
  if (--waiting_ == 0)
    waited_seconds_ += std::chrono::duration<double>(Clock::now() - since_).count();
}

void PendingReads::await(std::span<const std::byte> bytes) {
  std::unique_lock lock(mutex_);
  size_t last = 0;  // One past the last that overlaps.
  for (size_t i = finished_; i < spans_.size(); ++i)
    if (overlap(spans_[i], bytes)) last = i + 1;
  await_number(lock, last);
}

void PendingReads::await_all() {
  std::unique_lock lock(mutex_);
  await_number(lock, spans_.size());
}

std::string PendingReads::stalled(std::chrono::milliseconds least) const {
  const std::lock_guard lock(mutex_);
  if (waiting_ == 0 || Clock::now() - since_ < least) return "";
  return "waits for a checkpoint that is being written";
}

double PendingReads::take_waited_seconds() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waited_seconds_, 0.0);
}

}  // namespace tessera
