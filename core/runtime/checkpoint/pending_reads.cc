// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/pending_reads.h"

#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

bool overlap(const DeviceBuffer& a, const DeviceBuffer& b) {
  return a.device == b.device && a.bytes > 0 && b.bytes > 0 && a.address < b.address + b.bytes &&
         b.address < a.address + a.bytes;
}

}  // namespace

void PendingReads::begin(std::vector<DeviceBuffer> buffers) {
  const std::lock_guard lock(mutex_);
  CHECK(finished_ == buffers_.size(), "{} of {} buffers were read", finished_, buffers_.size());
  buffers_ = std::move(buffers);
  finished_ = 0;
}

void PendingReads::finish_next() {
  {
    const std::lock_guard lock(mutex_);
    CHECK(finished_ < buffers_.size());
    ++finished_;
  }
  changed_.notify_all();
}

void PendingReads::finish_all() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = buffers_.size();
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

void PendingReads::await(const DeviceBuffer& buffer) {
  std::unique_lock lock(mutex_);
  size_t last = 0;  // One past the last that overlaps.
  for (size_t i = finished_; i < buffers_.size(); ++i)
    if (overlap(buffers_[i], buffer)) last = i + 1;
  await_number(lock, last);
}

void PendingReads::await_all() {
  std::unique_lock lock(mutex_);
  await_number(lock, buffers_.size());
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
