// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint_saver.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/seconds.h"
#include "core/base/terminal.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

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
  const std::lock_guard lock(mutex_);
  CHECK(finished_ < buffers_.size());
  ++finished_;
  changed_.notify_all();
}

void PendingReads::finish_all() {
  const std::lock_guard lock(mutex_);
  finished_ = buffers_.size();
  changed_.notify_all();
}

void PendingReads::await_number(std::unique_lock<std::mutex>& lock, size_t number) {
  if (finished_ >= number) return;
  if (waiting_++ == 0) since_ = Clock::now();
  changed_.wait(lock, [&] { return finished_ >= number; });
  if (--waiting_ == 0) waited_seconds_ += seconds_since(since_);
}

void PendingReads::await(const DeviceBuffer& buffer) {
  std::unique_lock lock(mutex_);
  size_t last = 0;  // One past the last buffer that overlaps.
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

CheckpointSaver::CheckpointSaver(CheckpointStore store, const RetentionPolicy& policy,
                                 std::unique_ptr<ProcessGroup> processes)
    : store_(std::move(store)),
      policy_(policy),
      processes_(processes ? std::move(processes) : std::make_unique<ProcessGroup>()),
      reads_(std::make_shared<PendingReads>()),
      stall_probe_(processes_->stall_probes().add([this](std::chrono::milliseconds least) {
        const std::string text = reads_->stalled(least);
        return text.empty() ? text
                            : fmt::format("{} {}", processes_->name(processes_->rank()), text);
      })) {
  if (processes_->is_first()) store_.remove_unfinished();
}

CheckpointSaver::~CheckpointSaver() {
  join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    print_error("the last checkpoint was not saved: " + error_text(error));
  }
}

void CheckpointSaver::join() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::wait() {
  join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointSaver::save(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays) {
  const auto begin = Clock::now();
  wait();
  std::vector<DeviceBuffer> buffers;
  for (const CheckpointArray& array : arrays) buffers.push_back(array.bytes.device());
  reads_->begin(std::move(buffers));
  {
    const std::lock_guard lock(mutex_);
    blocked_seconds_ += seconds_since(begin);
  }
  try {
    thread_ = start_thread([this, info, arrays] { write(info, arrays); });
  } catch (...) {
    reads_->finish_all();  // Nothing will read them.
    throw;
  }
}

void CheckpointSaver::write(const CheckpointInfo& info,
                            const std::vector<CheckpointArray>& arrays) {
  const auto begin = Clock::now();
  try {
    Saved saved{.step = info.step};
    saved.bytes = store_.add(info, arrays, *processes_, [this] { reads_->finish_next(); });
    if (processes_->is_first()) {
      const std::lock_guard lock(mutex_);
      saved.removed = store_.outdated(policy_);
    }
    // Without the lock, or take_saved would wait for the disk.
    if (processes_->is_first() && !is_url(store_.directory())) store_.remove_unfinished();
    for (const int64_t step : saved.removed)
      if (const std::string problem = store_.remove(step);
          !problem.empty() && !std::exchange(warned_, true))
        saved.remains = fmt::format(
            "an old checkpoint cannot be removed ({}); it is tried again after each save", problem);
    const std::lock_guard lock(mutex_);
    saved.seconds = seconds_since(begin);
    saved.stall = std::exchange(blocked_seconds_, 0.0) + reads_->take_waited_seconds();
    saved_.push_back(std::move(saved));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  reads_->finish_all();
}

std::vector<CheckpointSaver::Saved> CheckpointSaver::take_saved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(saved_, {});
}

void CheckpointSaver::set_metric(int64_t step, double value) {
  const std::lock_guard lock(mutex_);
  store_.set_metric(step, value);
}

}  // namespace tessera
