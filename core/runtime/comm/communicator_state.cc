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

// Meetings spin where every device of the process can have a processor of its own.
std::chrono::microseconds spin_for(int64_t devices) {
  constexpr auto kSpin = std::chrono::microseconds(20);
  cpu_set_t set;
  const bool enough =
      sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) >= devices && devices > 1;
  return enough ? kSpin : std::chrono::microseconds(0);
}

// The one tag of messages about positions; collectives have others.
constexpr uint64_t kTidingsTag = uint64_t{3} << 59;

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000.0);
}

}  // namespace

CommunicatorState::CommunicatorState(CommunicatorOptions options) : options_(std::move(options)) {
  CHECK(options_.local_devices > 0);
  for (int64_t i = 0; i < options_.local_devices; ++i)
    records_.push_back(std::make_unique<Record>());
}

std::shared_ptr<Rendezvous> CommunicatorState::rendezvous(const std::vector<int64_t>& group) {
  int members = 0;
  for (const int64_t device : group) members += is_local(device) ? 1 : 0;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Rendezvous>& rendezvous = rendezvous_by_group_[group];
  if (!rendezvous)
    rendezvous = std::make_shared<Rendezvous>(members, spin_for(options_.local_devices));
  if (is_stopped()) rendezvous->stop();
  return rendezvous;
}

CommunicatorState::Record& CommunicatorState::record(int64_t device) const {
  CHECK(is_local(device), "device {} is of another process", device);
  return *records_[static_cast<size_t>(device - first_device())];
}

int64_t CommunicatorState::begin(int64_t device,
                                 const std::shared_ptr<const CollectiveInfo>& info) {
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
  it.awaited = -1;
  it.begin = std::chrono::steady_clock::now();
  return number;
}

void CommunicatorState::note_waiting(int64_t device, int64_t other) {
  Record& it = record(device);
  const std::lock_guard lock(it.mutex);
  it.awaited = other;
}

std::string CommunicatorState::stalled(std::chrono::milliseconds least) const {
  for (int64_t i = 0; i < options_.local_devices; ++i) {
    const int64_t device = first_device() + i;
    const Record& it = record(device);
    const std::lock_guard lock(it.mutex);
    if (!it.inside || it.awaited < 0 || std::chrono::steady_clock::now() - it.begin < least)
      continue;
    return fmt::format("{} waits in collective {}, {}, for {}", name_of(device), it.number,
                       it.info->text, name_of(it.awaited));
  }
  return "";
}

void CommunicatorState::end(int64_t device) {
  Record& it = record(device);
  const std::lock_guard lock(it.mutex);
  it.inside = false;
}

void CommunicatorState::count_sent(int64_t device, int64_t bytes) {
  record(device).sent.fetch_add(bytes, std::memory_order_relaxed);
}

int64_t CommunicatorState::bytes_sent(int64_t device) const {
  return record(device).sent.load(std::memory_order_relaxed);
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

std::string CommunicatorState::name_of(int64_t device) const {
  if (transport() == nullptr) return fmt::format("device {}", device);
  const int process = process_of(device);
  return fmt::format("device {} (process {}, host {})", device, process,
                     transport()->host(process));
}

std::string CommunicatorState::where_is(int64_t device) const {
  const Record& it = record(device);
  const std::lock_guard lock(it.mutex);
  if (!it.info) return "has not come to a collective yet";
  return fmt::format("{} collective {}, {}", it.inside ? "waits in" : "has come as far as",
                     it.number, it.info->text);
}

std::string CommunicatorState::positions() const {
  std::vector<std::string> all;
  for (int64_t i = 0; i < options_.local_devices; ++i) {
    const int64_t device = first_device() + i;
    all.push_back(fmt::format("{} {}", name_of(device), where_is(device)));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

void CommunicatorState::tell_others() {
  if (num_processes() == 1) return;
  const std::string text = positions();
  const std::lock_guard lock(mutex_);
  if (!tidings_.empty()) return;
  for (int other = 0; other < num_processes(); ++other) {
    auto& tidings = *tidings_.emplace_back(std::make_unique<Tidings>());
    if (other == process()) continue;
    std::copy_n(text.begin(), std::min(text.size(), kTidingsBytes - 1), tidings.mine.begin());
    tidings.received =
        transport()->receive(other, kTidingsTag, std::as_writable_bytes(std::span(tidings.theirs)));
    tidings.sent = transport()->send(other, kTidingsTag, std::as_bytes(std::span(tidings.mine)));
  }
}

CommunicatorState::~CommunicatorState() {
  // Of a process that never answers, the messages may not be destroyed.
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Tidings>>;
  const std::lock_guard lock(mutex);
  for (auto& each : tidings_) kept->push_back(std::move(each));
}

std::string CommunicatorState::answer_of(int process) const {
  const std::string name = fmt::format("process {} (host {})", process, transport()->host(process));
  const std::lock_guard lock(mutex_);
  const bool answered =
      !tidings_.empty() && tidings_[static_cast<size_t>(process)]->received->wait_until(
                               std::chrono::steady_clock::now());
  if (!answered) return name + " does not answer";
  return fmt::format("{} says: {}", name, tidings_[static_cast<size_t>(process)]->theirs.data());
}

void CommunicatorState::fail_timed_out(int64_t device, const std::vector<int64_t>& missing,
                                       const Patience& patience) const {
  std::vector<std::string> absent, known;
  for (const int64_t each : missing)
    absent.push_back(is_local(each) ? fmt::format("{}, which {}", name_of(each), where_is(each))
                                    : name_of(each));
  known.push_back(positions());
  for (int other = 0; other < num_processes(); ++other)
    if (other != process()) known.push_back(answer_of(other));
  std::string text;
  int64_t number = 0;
  {
    const Record& it = record(device);
    const std::lock_guard lock(it.mutex);
    text = it.info->text;
    number = it.number;
  }
  fail("{} has waited {} in collective {}, {}, for {}{}. Where all are: {}", name_of(device),
       seconds_text(patience.limit()), number, text, fmt::join(absent, ", "), patience.held_up(),
       fmt::join(known, "; "));
}

}  // namespace tessera
