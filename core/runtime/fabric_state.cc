// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/fabric_state.h"

#include <sched.h>

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// Meetings spin where every device of the process can have a processor of its own.
std::chrono::microseconds spin_for(int64_t devices) {
  constexpr auto kSpin = std::chrono::microseconds(20);
  cpu_set_t set;
  const bool enough =
      sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) >= devices && devices > 1;
  return enough ? kSpin : std::chrono::microseconds(0);
}

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000.0);
}

}  // namespace

FabricState::FabricState(FabricOptions options) : options_(std::move(options)) {
  CHECK(options_.local_devices > 0);
  for (int64_t i = 0; i < options_.local_devices; ++i)
    records_.push_back(std::make_unique<Record>());
}

std::shared_ptr<Meeting> FabricState::meeting(const std::vector<int64_t>& group) {
  int members = 0;
  for (const int64_t device : group) members += is_local(device) ? 1 : 0;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Meeting>& meeting = meetings_[group];
  if (!meeting) meeting = std::make_shared<Meeting>(members, spin_for(options_.local_devices));
  if (is_stopped()) meeting->stop();
  return meeting;
}

FabricState::Record& FabricState::record(int64_t device) const {
  CHECK(is_local(device), "device {} is of another process", device);
  return *records_[static_cast<size_t>(device - first_device())];
}

int64_t FabricState::begin(int64_t device, const std::shared_ptr<const CollectiveInfo>& info) {
  Record& it = record(device);
  int64_t number = 0;
  {
    const std::lock_guard lock(it.mutex);
    number = it.number + 1;
  }
  if (options_.before_joining) options_.before_joining(device, number);
  if (is_stopped()) fail_stopped();
  const std::lock_guard lock(it.mutex);
  it.info = info;
  it.number = number;
  it.inside = true;
  return number;
}

void FabricState::end(int64_t device) {
  Record& it = record(device);
  const std::lock_guard lock(it.mutex);
  it.inside = false;
}

void FabricState::count_sent(int64_t device, int64_t bytes) {
  record(device).sent.fetch_add(bytes, std::memory_order_relaxed);
}

int64_t FabricState::bytes_sent(int64_t device) const {
  return record(device).sent.load(std::memory_order_relaxed);
}

void FabricState::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (is_stopped()) return;
  reason_ = reason;
  stopped_.store(true, std::memory_order_release);
  for (const auto& [group, meeting] : meetings_) meeting->stop();
}

void FabricState::fail_stopped() const {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = reason_;
  }
  fail("the run was stopped: {}", reason);
}

std::string FabricState::name_of(int64_t device) const {
  if (transport() == nullptr) return fmt::format("device {}", device);
  const int process = process_of(device);
  return fmt::format("device {} (process {}, host {})", device, process,
                     transport()->host(process));
}

std::string FabricState::where_is(int64_t device) const {
  if (!is_local(device)) return "of which this process has not heard";
  const Record& it = record(device);
  const std::lock_guard lock(it.mutex);
  if (!it.info) return "before its first collective";
  return fmt::format("{} {} {}", it.inside ? "waits in collective" : "has left collective",
                     it.number, it.info->text);
}

void FabricState::fail_timed_out(int64_t device, const std::vector<int64_t>& missing) const {
  std::string text;
  int64_t number = 0;
  {
    const Record& it = record(device);
    const std::lock_guard lock(it.mutex);
    text = it.info->text;
    number = it.number;
  }
  std::vector<std::string> absent, others;
  for (const int64_t each : missing)
    absent.push_back(fmt::format("{}, {}", name_of(each), where_is(each)));
  for (int64_t i = 0; i < options_.local_devices; ++i) {
    const int64_t each = first_device() + i;
    if (std::find(missing.begin(), missing.end(), each) == missing.end())
      others.push_back(fmt::format("{}, {}", name_of(each), where_is(each)));
  }
  fail("no progress for {} in collective {} {}: missing {}; here {}", seconds(options_.timeout),
       number, text, fmt::join(absent, "; "), fmt::join(others, "; "));
}

}  // namespace tessera
