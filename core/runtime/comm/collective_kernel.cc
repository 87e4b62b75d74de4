// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/collective_kernel.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kWindow = 4;  // Pieces of strided messages that are received at the same time.

}  // namespace

GroupTopology::GroupTopology(const std::vector<int64_t>& group, int64_t device,
                             int64_t devices_per_process) {
  std::map<int64_t, std::vector<Member>> by_process;
  for (size_t i = 0; i < group.size(); ++i) {
    const int64_t process = group[i] / devices_per_process;
    by_process[process].push_back({.device = group[i],
                                   .index = static_cast<int64_t>(i),
                                   .process = static_cast<int>(process)});
  }
  bool found = false;
  for (auto& [process, members] : by_process) {
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.device < b.device; });
    for (size_t i = 0; i < members.size(); ++i) {
      members[i].position = static_cast<int64_t>(i);
      if (members[i].device != device) continue;
      own_ = processes_.size();
      self_ = members[i];
      found = true;
    }
    processes_.push_back(members);
  }
  CHECK(found, "device {} is not in its own group", device);

  for (size_t here = 0; here < processes_.size(); ++here) {
    std::vector<int64_t> num_peers(processes_[here].size(), 0);
    for (size_t there = 0; there < processes_.size(); ++there) {
      if (there == here) continue;
      for (const Member& member : processes_[there]) {
        const Member& by = leader(here, member);
        max_peers_ = std::max(max_peers_, ++num_peers[static_cast<size_t>(by.position)]);
        if (by.device == device) peers_.push_back(member);
      }
    }
  }
}

std::vector<Member> GroupTopology::remote() const {
  std::vector<Member> remote;
  for (size_t there = 0; there < processes_.size(); ++there)
    if (there != own_)
      remote.insert(remote.end(), processes_[there].begin(), processes_[there].end());
  return remote;
}

PendingRequests::~PendingRequests() {
  for (Pending& each : pending_) keep_until_exit(std::move(each.request));
}

CollectiveKernel::CollectiveKernel(CommunicatorState& state, int64_t device,
                                   std::shared_ptr<const CollectiveInfo> info)
    : state_(state),
      device_(device),
      info_(std::move(info)),
      scratch_bytes_(info_->scratch_bytes()),
      topology_(info_->group, device, state.communicator().local_devices()),
      rendezvous_(state.rendezvous(info_->group)) {}

void CollectiveKernel::run(const HostArgs& args) {
  state_.begin_collective(device_, info_);
  deadline_ = WaitDeadline(state_.communicator().timeout());
  rendezvous_->buffers(static_cast<int>(topology_.self().position)) = {
      args.inputs[0], args.outputs[0], info_.get()};
  barrier();
  check_same_collective();
  communicate(args);
  barrier();  // No other device reads this device's buffers any more.
  state_.end_collective(device_);
}

const PeerBuffers& CollectiveKernel::buffers_of(const Member& local) const {
  return rendezvous_->buffers(static_cast<int>(local.position));
}

void CollectiveKernel::check_same_collective() const {
  for (const Member& member : topology_.local()) {
    const CollectiveInfo& other = *buffers_of(member).info;
    CHECK(other.signature == info_->signature, "device {} runs {}, device {} runs {}", device_,
          info_->signature, member.device, other.signature);
  }
}

void CollectiveKernel::barrier() {
  const auto own = static_cast<int>(topology_.self().position);
  const Rendezvous::Phase phase = rendezvous_->arrive(own);
  deadline_.resume();
  Rendezvous::Outcome outcome = rendezvous_->wait(phase, deadline_.next_poll());
  while (outcome == Rendezvous::Outcome::kTimedOut && !deadline_.poll()) {
    if (deadline_.nearly_expired()) state_.exchange_positions();
    outcome = rendezvous_->wait(phase, deadline_.next_poll());
  }
  switch (outcome) {
    case Rendezvous::Outcome::kComplete:
      return;
    case Rendezvous::Outcome::kStopped:
      state_.fail_stopped();
    case Rendezvous::Outcome::kTimedOut:
      break;
  }
  std::vector<int64_t> missing;
  for (const Member& member : topology_.local())
    if (rendezvous_->arrivals(static_cast<int>(member.position)) < rendezvous_->arrivals(own))
      missing.push_back(member.device);
  state_.fail_timed_out(device_, missing, deadline_);
}

void CollectiveKernel::count_copied(const Member& local, int64_t bytes) {
  if (local.device != device_) state_.count_sent(local.device, bytes);
}

// MPI matches messages by processes and tag, so a tag tells apart the pairs of devices of two
// processes.
int CollectiveKernel::tag(int64_t from, int64_t to) const {
  const int64_t devices = state_.communicator().local_devices();
  return kFirstCollectiveTag + static_cast<int>(from % devices * devices + to % devices);
}

void CollectiveKernel::send(const Member& to, std::span<const std::byte> bytes,
                            PendingRequests& requests) {
  if (bytes.empty()) return;
  requests.pending_.push_back(
      {state_.communicator().transport()->send(to.process, tag(device_, to.device), bytes),
       to.device});
  state_.count_sent(device_, static_cast<int64_t>(bytes.size()));
}

void CollectiveKernel::receive(const Member& from, std::span<std::byte> bytes,
                               PendingRequests& requests) {
  if (bytes.empty()) return;
  requests.pending_.push_back(
      {state_.communicator().transport()->receive(from.process, tag(from.device, device_), bytes),
       from.device});
}

void CollectiveKernel::wait(PendingRequests& requests) {
  deadline_.resume();
  for (const PendingRequests::Pending& each : requests.pending_) {
    while (!each.request->wait_until(deadline_.next_poll())) {
      if (state_.is_stopped()) state_.fail_stopped();
      state_.note_waiting(device_, each.device);
      if (deadline_.poll()) state_.fail_timed_out(device_, {each.device}, deadline_);
      if (deadline_.nearly_expired()) state_.exchange_positions();
    }
  }
  requests.pending_.clear();
}

void CollectiveKernel::all_gather_parts(const PartOf& part, const SourceOf& source,
                                        const std::byte* own, std::byte* out, std::byte* scratch) {
  PendingRequests sends;
  if (topology_.spans_processes()) send_own_part(part(topology_.self().index), own, sends);
  for (const Member& member : topology_.local()) {
    const Source from = source(member);
    const Subarray to = part(member.index);
    if (from.array == out && member.device == device_) continue;  // It is in place already.
    copy_region(from.part, from.array, to, out);
    count_copied(member, to.bytes());
  }
  if (!topology_.spans_processes()) return;
  receive_parts(part, out, scratch);
  barrier();  // Each leader has received its peers' parts.
  for (const Member& member : topology_.remote()) {
    const Member& leader = topology_.leader(topology_.own_process(), member);
    if (leader.device == device_) continue;
    const Subarray to = part(member.index);
    copy_region(to, output_of(leader), to, out);
    count_copied(leader, to.bytes());
  }
  wait(sends);
}

void CollectiveKernel::send_own_part(const Subarray& part, const std::byte* own,
                                     PendingRequests& requests) {
  // A strided part is received in pieces, because it is unpacked from scratch.
  const int64_t piece =
      part.is_contiguous() ? std::max<int64_t>(part.bytes(), 1) : piece_bytes(kWindow);
  for (size_t there = 0; there < topology_.processes().size(); ++there) {
    if (there == topology_.own_process()) continue;
    for (int64_t begin = 0; begin < part.bytes(); begin += piece) {
      const int64_t bytes = std::min(piece, part.bytes() - begin);
      send(topology_.leader(there, topology_.self()), {own + begin, static_cast<size_t>(bytes)},
           requests);
    }
  }
}

void CollectiveKernel::receive_parts(const PartOf& part, std::byte* out, std::byte* scratch) {
  PendingRequests contiguous;
  std::array<PendingRequests, kWindow> staged;
  struct Piece {
    const Member* from;
    Subarray part;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (const Member& member : topology_.peers()) {
    const Subarray to = part(member.index);
    if (to.is_contiguous()) {
      receive(member, {out + to.begin(), static_cast<size_t>(to.bytes())}, contiguous);
      continue;
    }
    const int64_t piece = piece_bytes(kWindow);
    for (int64_t begin = 0; begin < to.bytes(); begin += piece)
      pieces.push_back({&member, to, begin, std::min(begin + piece, to.bytes())});
  }
  const auto buffer = [&](size_t i) {
    return scratch + static_cast<int64_t>(i % kWindow) * piece_bytes(kWindow);
  };
  const auto post = [&](size_t i) {
    if (i >= pieces.size()) return;
    const auto bytes = static_cast<size_t>(pieces[i].end - pieces[i].begin);
    receive(*pieces[i].from, {buffer(i), bytes}, staged[i % kWindow]);
  };
  for (size_t i = 0; i < kWindow; ++i) post(i);
  for (size_t i = 0; i < pieces.size(); ++i) {
    wait(staged[i % kWindow]);
    pieces[i].part.unpack(buffer(i), pieces[i].begin, pieces[i].end, out);
    post(i + kWindow);
  }
  wait(contiguous);
}

int64_t CollectiveKernel::piece_bytes(int64_t buffers) const {
  constexpr int64_t kAlign = 64;
  const int64_t piece = scratch_bytes_ / std::max<int64_t>(buffers, 1) / kAlign * kAlign;
  CHECK(piece > 0, "{} bytes of scratch for {} buffers", scratch_bytes_, buffers);
  return piece;
}

std::unique_ptr<Kernel> make_collective_kernel(CommunicatorState& state, int64_t device,
                                               const Graph& graph, const Node& node) {
  auto info = std::make_shared<const CollectiveInfo>(read_collective(graph, node));
  CHECK(info->group[static_cast<size_t>(info->index)] == device, "device {} at index {} of a group",
        device, info->index);
  switch (info->kind) {
    case CollectiveKind::kAllGather:
      return make_gather_kernel(state, device, std::move(info));
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return make_reduce_kernel(state, device, std::move(info));
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kPermute:
      break;
  }
  return make_exchange_kernel(state, device, std::move(info));
}

}  // namespace tessera
