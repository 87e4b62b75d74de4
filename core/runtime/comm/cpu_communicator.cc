// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/cpu_communicator.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using std::chrono::steady_clock;

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

constexpr const char* kInside = "waits in";  // Used in reports of positions.

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

std::unique_ptr<Communicator> make_cpu_communicator(CommunicatorOptions options) {
  return std::make_unique<CpuCommunicator>(std::move(options));
}

CollectiveNeeds cpu_collective_needs(const Graph& graph, const Node& node) {
  // While an all_reduce reads operands, each device writes only the part that only it reads.
  return {.scratch_bytes = read_collective(graph, node).scratch_bytes(),
          .may_overwrite = node.op == &kAllReduceOp};
}

CpuCommunicator::CpuCommunicator(CommunicatorOptions options) : Communicator(std::move(options)) {
  CHECK(local_devices() > 0);
  for (int64_t i = 0; i < local_devices(); ++i)
    progress_.push_back(std::make_unique<DeviceProgress>());
}

CpuCommunicator::~CpuCommunicator() {
  for (auto& each : positions_) keep_until_exit(std::move(each));
}

std::unique_ptr<Kernel> CpuCommunicator::prepare(int64_t device, const Graph& graph,
                                                 const Node& node) {
  return make_collective_kernel(*this, device, graph, node);
}

std::shared_ptr<Rendezvous> CpuCommunicator::rendezvous(const std::vector<int64_t>& group) {
  int members = 0;
  for (const int64_t device : group) members += is_local(device) ? 1 : 0;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Rendezvous>& rendezvous = rendezvous_by_group_[group];
  if (!rendezvous) rendezvous = std::make_shared<Rendezvous>(members, spin_for(local_devices()));
  if (is_stopped()) rendezvous->stop();
  return rendezvous;
}

CpuCommunicator::DeviceProgress& CpuCommunicator::progress(int64_t device) const {
  CHECK(is_local(device), "device {} belongs to another process", device);
  return *progress_[static_cast<size_t>(device - first_device())];
}

int64_t CpuCommunicator::join_collective(int64_t device) {
  DeviceProgress& it = progress(device);
  if (options().before_joining) options().before_joining(device, it.joined);
  if (is_stopped()) fail_stopped();
  return it.joined++;
}

void CpuCommunicator::forget_collectives(int64_t device, int64_t count) {
  progress(device).joined -= count;
}

void CpuCommunicator::note_position(int64_t device,
                                    const std::shared_ptr<const CollectiveInfo>& info,
                                    int64_t number, bool inside) {
  DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  it.info = info;
  it.number = number;
  it.inside = inside;
  it.awaited.clear();
  it.begin = steady_clock::now();
}

void CpuCommunicator::begin_collective(int64_t device,
                                       const std::shared_ptr<const CollectiveInfo>& info) {
  note_position(device, info, join_collective(device), true);
}

void CpuCommunicator::note_waiting(int64_t device, const std::vector<int64_t>& others) {
  DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  it.awaited = others;
}

std::string CpuCommunicator::stalled(std::chrono::milliseconds least) const {
  for (int64_t i = 0; i < local_devices(); ++i) {
    const int64_t device = first_device() + i;
    const DeviceProgress& it = progress(device);
    const std::lock_guard lock(it.mutex);
    if (!it.inside || it.awaited.empty() || steady_clock::now() - it.begin < least) continue;
    std::vector<std::string> awaited;
    for (const int64_t other : it.awaited) awaited.push_back(name_of(other));
    return fmt::format("{} waits in collective {}, {}, for {}", name_of(device), it.number,
                       it.info->text, fmt::join(awaited, ", "));
  }
  return "";
}

void CpuCommunicator::end_collective(int64_t device) {
  DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  it.inside = false;
}

void CpuCommunicator::count_sent(int64_t device, int64_t bytes) {
  progress(device).sent.fetch_add(bytes, std::memory_order_relaxed);
}

int64_t CpuCommunicator::bytes_sent(int64_t device) const {
  return progress(device).sent.load(std::memory_order_relaxed);
}

void CpuCommunicator::barrier(Rendezvous& rendezvous, const GroupTopology& topology,
                              WaitDeadline& deadline) {
  const auto own = static_cast<int>(topology.self().position);
  const Rendezvous::Phase phase = rendezvous.arrive(own);
  deadline.resume();
  Rendezvous::Outcome outcome = rendezvous.wait(phase, deadline.next_poll());
  while (outcome == Rendezvous::Outcome::kTimedOut && !deadline.poll()) {
    if (deadline.nearly_expired()) exchange_positions();
    outcome = rendezvous.wait(phase, deadline.next_poll());
  }
  switch (outcome) {
    case Rendezvous::Outcome::kComplete:
      return;
    case Rendezvous::Outcome::kStopped:
      fail_stopped();
    case Rendezvous::Outcome::kTimedOut:
      break;
  }
  std::vector<int64_t> missing;
  for (const Member& member : topology.local())
    if (rendezvous.arrivals(static_cast<int>(member.position)) < rendezvous.arrivals(own))
      missing.push_back(member.device);
  fail_timed_out(topology.self().device, missing, deadline);
}

void CpuCommunicator::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (is_stopped()) return;
  reason_ = reason;
  stopped_.store(true, std::memory_order_release);
  for (const auto& [group, rendezvous] : rendezvous_by_group_) rendezvous->stop();
}

void CpuCommunicator::fail_stopped() const {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = reason_;
  }
  fail("the run was stopped: {}", reason);
}

std::string CpuCommunicator::name_of(int64_t device) const {
  if (transport() == nullptr) return fmt::format("device {}", device);
  const int process = process_of(device);
  return fmt::format("device {} (process {}, host {})", device, process,
                     transport()->host(process));
}

std::string CpuCommunicator::position_of(int64_t device) const {
  const DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  if (!it.info) return "has not run a collective yet";
  return fmt::format("{} collective {}, {}", it.inside ? kInside : "has finished", it.number,
                     it.info->text);
}

std::string CpuCommunicator::local_positions() const {
  std::vector<std::string> all;
  for (int64_t i = 0; i < local_devices(); ++i) {
    const int64_t device = first_device() + i;
    all.push_back(fmt::format("{} {}", name_of(device), position_of(device)));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

void CpuCommunicator::exchange_positions() {
  if (num_processes() == 1) return;
  const std::string text = local_positions();
  const std::lock_guard lock(mutex_);
  if (!positions_.empty()) return;
  for (int other = 0; other < num_processes(); ++other) {
    PositionExchange& with = *positions_.emplace_back(std::make_shared<PositionExchange>());
    if (other == process()) continue;
    std::copy_n(text.begin(), std::min(text.size(), kPositionsBytes - 1), with.mine.begin());
    with.receive =
        transport()->receive(other, kPositionsTag, std::as_writable_bytes(std::span(with.theirs)));
    with.send = transport()->send(other, kPositionsTag, std::as_bytes(std::span(with.mine)));
  }
}

std::string CpuCommunicator::report_of(int process) const {
  const std::lock_guard lock(mutex_);
  if (positions_.empty()) return "";
  const PositionExchange& with = *positions_[static_cast<size_t>(process)];
  return with.receive->wait_until(steady_clock::now()) ? with.theirs.data() : "";
}

std::string CpuCommunicator::positions_of_process(int process) const {
  const std::string name = fmt::format("process {} (host {})", process, transport()->host(process));
  const std::string report = report_of(process);
  if (report.empty()) return name + " does not answer";
  return fmt::format("{} reports: {}", name, report);
}

bool CpuCommunicator::is_inside(int64_t device) const {
  if (!is_local(device)) {
    const std::string report = report_of(process_of(device));
    return report.find(fmt::format("{} {} ", name_of(device), kInside)) != std::string::npos;
  }
  const DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  return it.inside;
}

void CpuCommunicator::fail_timed_out(int64_t device, const std::vector<int64_t>& missing,
                                     const WaitDeadline& deadline) const {
  std::vector<std::string> absent, positions{local_positions()};
  for (const int64_t each : missing)
    absent.push_back(is_local(each) ? fmt::format("{}, which {}", name_of(each), position_of(each))
                                    : name_of(each));
  for (int other = 0; other < num_processes(); ++other)
    if (other != process()) positions.push_back(positions_of_process(other));
  const DeviceProgress& it = progress(device);
  const std::lock_guard lock(it.mutex);
  fail("{} has waited {} in collective {}, {}, for {}{}. Positions of all devices: {}",
       name_of(device), seconds_text(deadline.timeout()), it.number, it.info->text,
       fmt::join(absent, ", "), deadline.suspension_note(), fmt::join(positions, "; "));
}

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
