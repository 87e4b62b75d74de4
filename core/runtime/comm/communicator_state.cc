// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/communicator_state.h"

#include <sched.h>

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// Barriers spin if each device of the process can have a processor of its own.
std::chrono::microseconds spin_for(int64_t devices) {
  constexpr auto kSpin = std::chrono::microseconds(20);
  cpu_set_t set;
  const bool enough =
      sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) >= devices && devices > 1;
  return enough ? kSpin : std::chrono::microseconds(0);
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000.0);
}

}  // namespace

CommunicatorState::CommunicatorState(const Communicator& communicator)
    : communicator_(communicator) {
  CHECK(communicator_.local_devices() > 0);
  for (int64_t i = 0; i < communicator_.local_devices(); ++i)
    progress_.push_back(std::make_unique<DeviceProgress>());
}

std::shared_ptr<Rendezvous> CommunicatorState::rendezvous(const std::vector<int64_t>& group) {
  int members = 0;
  for (const int64_t device : group) members += is_local(device) ? 1 : 0;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Rendezvous>& rendezvous = rendezvous_by_group_[group];
  if (!rendezvous)
    rendezvous = std::make_shared<Rendezvous>(members, spin_for(communicator_.local_devices()));
  if (is_stopped()) rendezvous->stop();
  return rendezvous;
}

CommunicatorState::DeviceProgress& CommunicatorState::progress(int64_t device) const {
  CHECK(is_local(device), "device {} belongs to another process", device);
  return *progress_[static_cast<size_t>(device - communicator_.first_device())];
}

void CommunicatorState::begin_collective(int64_t device,
                                         const std::shared_ptr<const CollectiveInfo>& info) {
  DeviceProgress& it = progress(device);
  int64_t number = 0;
  {
    const std::lock_guard lock(it.mutex);
    number = it.number + 1;
  }
  if (communicator_.options().before_joining)
    communicator_.options().before_joining(device, number);
  if (is_stopped()) fail_stopped();
  const std::lock_guard lock(it.mutex);
  it.info = info;
  it.number = number;
  it.inside = true;
  it.awaited = -1;
  it.begin = std::chrono::steady_clock::now();
}

void CommunicatorState::note_waiting(int64_t device, int64_t other) {
  DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  it.awaited = other;
}

std::string CommunicatorState::stalled(std::chrono::milliseconds least) const {
  for (int64_t i = 0; i < communicator_.local_devices(); ++i) {
    const int64_t device = communicator_.first_device() + i;
    const DeviceProgress& it = progress(device);
    const std::lock_guard lock(it.mutex);
    if (!it.inside || it.awaited < 0 || std::chrono::steady_clock::now() - it.begin < least)
      continue;
    return fmt::format("{} waits in collective {}, {}, for {}", name_of(device), it.number,
                       it.info->text, name_of(it.awaited));
  }
  return "";
}

void CommunicatorState::end_collective(int64_t device) {
  DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  it.inside = false;
}

void CommunicatorState::count_sent(int64_t device, int64_t bytes) {
  progress(device).sent.fetch_add(bytes, std::memory_order_relaxed);
}

int64_t CommunicatorState::bytes_sent(int64_t device) const {
  return progress(device).sent.load(std::memory_order_relaxed);
}

void CommunicatorState::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (is_stopped()) return;
  reason_ = reason;
  stopped_.store(true, std::memory_order_release);
  for (const auto& [group, rendezvous] : rendezvous_by_group_) rendezvous->stop();
}

void CommunicatorState::fail_stopped() const {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = reason_;
  }
  fail("the run was stopped: {}", reason);
}

int CommunicatorState::process_of(int64_t device) const {
  return static_cast<int>(device / communicator_.local_devices());
}

std::string CommunicatorState::name_of(int64_t device) const {
  if (communicator_.transport() == nullptr) return fmt::format("device {}", device);
  const int process = process_of(device);
  return fmt::format("device {} (process {}, host {})", device, process,
                     communicator_.transport()->host(process));
}

std::string CommunicatorState::position_of(int64_t device) const {
  const DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  if (!it.info) return "has not run a collective yet";
  return fmt::format("{} collective {}, {}", it.inside ? "waits in" : "has finished", it.number,
                     it.info->text);
}

std::string CommunicatorState::local_positions() const {
  std::vector<std::string> all;
  for (int64_t i = 0; i < communicator_.local_devices(); ++i) {
    const int64_t device = communicator_.first_device() + i;
    all.push_back(fmt::format("{} {}", name_of(device), position_of(device)));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

void CommunicatorState::exchange_positions() {
  if (communicator_.num_processes() == 1) return;
  const std::string text = local_positions();
  const std::lock_guard lock(mutex_);
  if (!positions_.empty()) return;
  for (int other = 0; other < communicator_.num_processes(); ++other) {
    PositionExchange& with = *positions_.emplace_back(std::make_shared<PositionExchange>());
    if (other == communicator_.process()) continue;
    std::copy_n(text.begin(), std::min(text.size(), kPositionsBytes - 1), with.mine.begin());
    with.receive = communicator_.transport()->receive(
        other, kPositionsTag, std::as_writable_bytes(std::span(with.theirs)));
    with.send =
        communicator_.transport()->send(other, kPositionsTag, std::as_bytes(std::span(with.mine)));
  }
}

CommunicatorState::~CommunicatorState() {
  for (auto& each : positions_) keep_until_exit(std::move(each));
}

std::string CommunicatorState::positions_of_process(int process) const {
  const std::string name =
      fmt::format("process {} (host {})", process, communicator_.transport()->host(process));
  const std::lock_guard lock(mutex_);
  const bool answered =
      !positions_.empty() && positions_[static_cast<size_t>(process)]->receive->wait_until(
                                 std::chrono::steady_clock::now());
  if (!answered) return name + " does not answer";
  return fmt::format("{} reports: {}", name,
                     positions_[static_cast<size_t>(process)]->theirs.data());
}

void CommunicatorState::fail_timed_out(int64_t device, const std::vector<int64_t>& missing,
                                       const WaitDeadline& deadline) const {
  std::vector<std::string> absent, positions{local_positions()};
  for (const int64_t each : missing)
    absent.push_back(is_local(each) ? fmt::format("{}, which {}", name_of(each), position_of(each))
                                    : name_of(each));
  for (int other = 0; other < communicator_.num_processes(); ++other)
    if (other != communicator_.process()) positions.push_back(positions_of_process(other));
  const DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  fail("{} has waited {} in collective {}, {}, for {}{}. Positions of all devices: {}",
       name_of(device), seconds_text(deadline.timeout()), it.number, it.info->text,
       fmt::join(absent, ", "), deadline.suspension_note(), fmt::join(positions, "; "));
}

}  // namespace tessera
