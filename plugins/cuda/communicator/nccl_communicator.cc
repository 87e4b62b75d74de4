// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/nccl_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/devices/cpu/stream.h"
#include "core/ops/reshard.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/progress.h"

namespace tessera::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A position of a GPU is the number of a collective and how many it has joined, modulo 2^16, so
// that no two in a row are equal; and whether it has left that collective.
constexpr uint32_t kLeft = 1u << 31;
constexpr int kCountBits = 16;
constexpr uint32_t kCountMask = (1u << kCountBits) - 1;
constexpr uint32_t kMostCollectives = kLeft >> kCountBits;

// The channel of the process group that compares GPUs; channel 1 is for saving checkpoints.
constexpr int kConnectingChannel = 2;

const Nccl& require_nccl() {
  std::string why;
  const Nccl* const library = find_nccl(why);
  if (library == nullptr) fail("--device=cuda: {}", why);
  return *library;
}

std::string bus_id(const Context& context) {
  char text[32] = {};
  context.check(context.driver().cuDeviceGetPCIBusId(text, sizeof(text), context.device()),
                "asking for its bus id");
  return text;
}

}  // namespace

NcclCommunicator::NcclCommunicator(CommunicatorOptions options)
    : Communicator(std::move(options)), library_(require_nccl()), host_(Communicator::options()) {
  // Sums in the switch (NVLS) may differ from call to call; the others are the same each time.
  if (Communicator::options().deterministic) setenv("NCCL_NVLS_ENABLE", "0", 0);
  const int first = first_gpu(local_devices(), local_rank(transport()));
  for (int i = 0; i < local_devices(); ++i) {
    auto it = std::make_unique<Progress>();
    it->context = shared_context(first + i);
    it->context->make_current();
    it->position = std::make_shared<PinnedBuffer>(*it->context, sizeof(uint32_t));
    std::memset(it->position->data(), 0, sizeof(uint32_t));
    it->collectives.push_back(nullptr);  // Number 0 is before the first.
    progress_.push_back(std::move(it));
  }
  require_different_gpus();
  watching_ = start_thread([this] { watch(); });
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  watching_.join();
  if (!is_stopped()) end_ranks();
  // After a failure, a stream that was given up may still write.
  for (const auto& it : progress_)
    if (is_stopped()) keep_until_exit(it->position);
}

void NcclCommunicator::require_different_gpus() const {
  std::string own;
  for (const auto& it : progress_) own += bus_id(*it->context) + "\n";
  ProcessGroup processes(options().transport, timeout(), kConnectingChannel);
  const std::vector<std::string> of_rank = processes.all_gather(own, "the choice of GPUs");
  std::map<std::string, int> users;  // By host and GPU.
  for (int rank = 0; rank < processes.size(); ++rank) {
    std::istringstream gpus(of_rank[static_cast<size_t>(rank)]);
    for (std::string gpu; std::getline(gpus, gpu);) {
      const auto [user, is_new] = users.try_emplace(processes.host(rank) + " " + gpu, rank);
      if (!is_new)
        fail(
            "--device=cuda: processes {} and {} of host {} use the same GPU, {}; start as many "
            "processes as --devices={} allows, and let each process see all GPUs of its host, or "
            "only its own (CUDA_VISIBLE_DEVICES)",
            user->second, rank, processes.host(rank), gpu, local_devices());
    }
  }
}

std::unique_ptr<Kernel> NcclCommunicator::prepare(int64_t device, const Graph& graph,
                                                  const Node& node) {
  return make_nccl_kernel(*this, device, graph, node);
}

// ---- Connecting.

// Words of each device of a group, by the group's members, as the devices of a CPU would gather
// them. `like` has the group and what reports say.
void NcclCommunicator::gather(int64_t device, const Node& like, std::span<const uint32_t> own,
                              std::span<uint32_t> all) {
  Node node{.op = &kAllGatherOp, .inputs = {ValueId(0)}, .attributes = like.attributes};
  node.attributes.set(key::kAxis, "word");
  node.path = like.path;
  node.site = like.site;
  Graph graph;
  const auto words = [](auto span) { return make_type(DType::kU32, {{"word", std::ssize(span)}}); };
  graph.add_input("own", InputKind::kBatch, words(own));
  graph.add_node(std::move(node), {words(all)});
  const std::unique_ptr<Kernel> kernel = host_.prepare(device, graph, graph.nodes().front());
  std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratch_bytes()));
  const std::byte* const in = std::as_bytes(own).data();
  std::byte* const out = std::as_writable_bytes(all).data();
  host_kernel(*kernel).run({{&in, 1}, {&out, 1}, scratch.data()});
}

// The group's first device makes the id.
nccl::UniqueId NcclCommunicator::share_id(int64_t device, const Node& node, int64_t ranks) {
  constexpr size_t kWords = sizeof(nccl::UniqueId) / sizeof(uint32_t);
  std::array<uint32_t, kWords> own = {};
  if (node.attributes.get(key::kIndex) == 0) {
    nccl::UniqueId id = {};
    library_.check(library_.ncclGetUniqueId(&id), nullptr, "making an id");
    std::memcpy(own.data(), &id, sizeof(id));
  }
  Node like = node;
  like.path = "connecting GPUs for " + node.path;
  std::vector<uint32_t> all(kWords * static_cast<size_t>(ranks));
  gather(device, like, own, all);
  nccl::UniqueId first;
  std::memcpy(&first, all.data(), sizeof(first));
  return first;
}

std::shared_ptr<NcclRank> NcclCommunicator::connect(
    int64_t device, const Node& node, const std::shared_ptr<const CollectiveInfo>& info) {
  Progress& it = at(device);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = it.ranks.find(info->group); found != it.ranks.end())
      return found->second;
  }
  require_running();
  const nccl::UniqueId id = share_id(device, node, info->size());
  it.context->make_current();
  const auto rank = std::make_shared<NcclRank>(
      library_, *it.context, static_cast<int>(info->size()), static_cast<int>(info->index), id);
  wait_until_ready(device, info, *rank);
  const std::lock_guard lock(mutex_);
  return it.ranks[info->group] = rank;
}

void NcclCommunicator::wait_until_ready(int64_t device,
                                        const std::shared_ptr<const CollectiveInfo>& info,
                                        NcclRank& rank) {
  constexpr std::chrono::microseconds kShortest(10), kLongest(1000);
  constexpr milliseconds kUsual(50);
  WaitDeadline deadline(timeout());
  const auto begin = steady_clock::now();
  bool is_noted = false;
  for (auto pause = kShortest; !rank.is_ready(); pause = std::min(2 * pause, kLongest)) {
    require_running();
    std::this_thread::sleep_for(pause);
    if (steady_clock::now() - begin < kUsual) continue;
    if (!is_noted) host_.note_position(device, info, at(device).joined, true);
    is_noted = true;
    keep_waiting(device, *info, deadline);
  }
  if (is_noted) host_.note_position(device, info, at(device).joined, false);
  require_running();
}

// ---- Collectives.

uint32_t NcclCommunicator::add_collective(int64_t device,
                                          const std::shared_ptr<const CollectiveInfo>& info) {
  const std::lock_guard lock(mutex_);
  Progress& it = at(device);
  it.collectives.push_back(info);
  CHECK(it.collectives.size() <= kMostCollectives, "{} collectives", it.collectives.size());
  return static_cast<uint32_t>(it.collectives.size() - 1);
}

void NcclCommunicator::write(const Progress& it, uint32_t position, CUstream stream) {
  write_mark(*it.context, stream, *it.position, 0, position);
}

void NcclCommunicator::arrive(int64_t device, uint32_t collective, CUstream stream) {
  Progress& it = at(device);
  require_running();
  it.joined = host_.join_collective(device);
  ++it.enqueued;
  it.current = collective << kCountBits | (static_cast<uint32_t>(it.joined) & kCountMask);
  write(it, it.current, stream);
}

void NcclCommunicator::leave(int64_t device, int64_t bytes_sent, CUstream stream) {
  Progress& it = at(device);
  write(it, it.current | kLeft, stream);
  it.sent += bytes_sent;
}

// Collectives that were aborted have ended, too.
void NcclCommunicator::require_running() const {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) fail("{}", failure_);
  }
  if (is_stopped()) host_.fail_stopped();
}

void NcclCommunicator::begin_run(int64_t device) {
  require_running();
  Progress& it = at(device);
  ++it.runs;
  it.enqueued = 0;
  it.sent_before = it.sent;
}

void NcclCommunicator::end_run(int64_t device, int program) {
  Progress& it = at(device);
  // A graph that is replayed sends what its kernels sent when they were captured.
  if (it.enqueued > 0)
    it.sent_by[program] = it.sent - it.sent_before;
  else
    it.sent += it.sent_by[program];
}

// The library expects that a collective is in a graph on all devices of its group, or on none.
bool NcclCommunicator::agree_on_capture(int64_t device, bool captured) {
  const auto count = static_cast<size_t>(num_devices());
  std::vector<int64_t> group(count);
  std::iota(group.begin(), group.end(), 0);
  Node everybody;
  everybody.attributes.set(key::kGroup, group);
  everybody.attributes.set(key::kIndex, device);
  everybody.path = "agreeing on CUDA graphs";
  const uint32_t own = captured ? 1 : 0;
  std::vector<uint32_t> all(count);
  gather(device, everybody, {&own, 1}, all);
  if (std::ranges::find(all, 0u) == all.end()) return true;
  Progress& it = at(device);
  host_.forget_collectives(device, it.enqueued);
  it.joined -= std::exchange(it.enqueued, 0);
  it.sent = it.sent_before;
  return false;
}

// ---- Failures.

std::vector<std::shared_ptr<NcclRank>> NcclCommunicator::ranks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<NcclRank>> all;
  for (const auto& it : progress_)
    for (const auto& [group, rank] : it->ranks) all.push_back(rank);
  return all;
}

void NcclCommunicator::stop(const std::string& reason) {
  host_.stop(reason);
  for (const auto& rank : ranks()) rank->abort();
}

void NcclCommunicator::fail_run(const std::string& report) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = report;
  }
  stop(report);
}

std::vector<int64_t> NcclCommunicator::missing(int64_t device, const CollectiveInfo& info) const {
  std::vector<int64_t> others = info.group, missing;
  std::erase(others, device);
  for (const int64_t other : others)
    if (!host_.is_inside(other)) missing.push_back(other);
  return missing.empty() ? others : missing;
}

// Throws the report when the time is over.
void NcclCommunicator::keep_waiting(int64_t device, const CollectiveInfo& info,
                                    WaitDeadline& deadline) {
  host_.note_waiting(device, missing(device, info));
  if (deadline.poll()) host_.fail_timed_out(device, missing(device, info), deadline);
  if (deadline.nearly_expired()) host_.exchange_positions();
}

void NcclCommunicator::look_at(int64_t device) {
  Progress& it = at(device);
  const uint32_t position = *static_cast<const volatile uint32_t*>(it.position->data());
  if (position == 0) return;
  std::shared_ptr<const CollectiveInfo> info;
  {
    const std::lock_guard lock(mutex_);
    info = it.collectives[(position & ~kLeft) >> kCountBits];
  }
  const bool inside = (position & kLeft) == 0;
  const int64_t runs = it.runs, joined = it.joined;
  if (position != it.seen_position || runs != it.seen_runs) {
    it.seen_position = position;
    it.seen_runs = runs;
    it.deadline = WaitDeadline(timeout());
    const int64_t behind = (joined - static_cast<int64_t>(position)) & kCountMask;
    host_.note_position(device, info, joined - behind, inside);
  } else if (inside) {
    keep_waiting(device, *info, it.deadline);
  }
}

void NcclCommunicator::look_for_errors() {
  try {
    for (const auto& rank : ranks()) rank->is_ready();
  } catch (const Error& error) {
    const std::string waiting = host_.stalled({});
    fail("{}{}{}", error.what(), waiting.empty() ? "" : "; ", waiting);
  }
}

void NcclCommunicator::watch() {
  constexpr milliseconds kInterval(20);
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kInterval, [this] { return ending_; })) {
    lock.unlock();
    try {
      for (int64_t i = 0; !is_stopped() && i < local_devices(); ++i) look_at(first_device() + i);
      if (!is_stopped()) look_for_errors();
    } catch (const Error& error) {
      fail_run(error.what());
    }
    lock.lock();
  }
}

void NcclCommunicator::end_ranks() const {
  constexpr std::chrono::seconds kPatience(10);
  const auto deadline = steady_clock::now() + kPatience;
  try {
    for (const auto& rank : ranks()) rank->finalize();
    for (const auto& rank : ranks()) {
      while (!rank->is_ready() && steady_clock::now() < deadline)
        std::this_thread::sleep_for(milliseconds(1));
      if (rank->is_ready()) rank->destroy();
    }
  } catch (const Error&) {
    // What is left is aborted. All collectives are done.
  }
}

}  // namespace tessera::cuda
