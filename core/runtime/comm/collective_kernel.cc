// SPDX-License-Identifier: Apache-2.0
// Implements the common part, and the collectives that move data without arithmetic: all_gather,
// all_to_all, permute, send and receive.
#include "core/runtime/comm/collective_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

constexpr int64_t kWindow = 4;  // Pieces of strided messages in flight to a receiver.

}  // namespace

PendingRequests::~PendingRequests() {
  for (Pending& each : pending_) keep_until_exit(std::move(each.request));
}

CollectiveKernel::CollectiveKernel(CpuCommunicator& communicator, int64_t device,
                                   std::shared_ptr<const CollectiveInfo> info)
    : communicator_(communicator),
      device_(device),
      info_(std::move(info)),
      scratch_bytes_(info_->scratch_bytes()),
      topology_(info_->group, device, communicator.local_devices()),
      rendezvous_(communicator.rendezvous(info_->group)) {}

void CollectiveKernel::run(const HostArgs& args) {
  communicator_.begin_collective(device_, info_);
  deadline_ = WaitDeadline(communicator_.timeout());
  rendezvous_->buffers(static_cast<int>(topology_.self().position)) = {
      .input = args.inputs.empty() ? nullptr : args.inputs[0],
      .output = args.outputs.empty() ? nullptr : args.outputs[0],
      .info = info_.get()};
  barrier();
  check_same_collective();
  communicate(args);
  barrier();  // No other device reads this device's buffers any more.
  communicator_.end_collective(device_);
}

const PeerBuffers& CollectiveKernel::buffers_of(const Member& local) const {
  return rendezvous_->buffers(static_cast<int>(local.position));
}

void CollectiveKernel::check_same_collective() const {
  for (const Member& member : topology_.local())
    require_same_collective(device_, *info_, member.device, *buffers_of(member).info);
}

void CollectiveKernel::barrier() { communicator_.barrier(*rendezvous_, topology_, deadline_); }

void CollectiveKernel::count_copied(const Member& local, int64_t bytes) {
  if (local.device != device_) communicator_.count_sent(local.device, bytes);
}

// MPI matches messages by processes and tag, so a tag tells apart the pairs of devices of two
// processes.
int CollectiveKernel::tag(int64_t from, int64_t to) const {
  const int64_t devices = communicator_.local_devices();
  return kFirstCollectiveTag + static_cast<int>(from % devices * devices + to % devices);
}

void CollectiveKernel::send(const Member& to, std::span<const std::byte> bytes,
                            PendingRequests& requests) {
  if (bytes.empty()) return;
  requests.pending_.push_back(
      {communicator_.transport()->send(to.process, tag(device_, to.device), bytes), to.device});
  communicator_.count_sent(device_, std::ssize(bytes));
}

void CollectiveKernel::receive(const Member& from, std::span<std::byte> bytes,
                               PendingRequests& requests) {
  if (bytes.empty()) return;
  requests.pending_.push_back(
      {communicator_.transport()->receive(from.process, tag(from.device, device_), bytes),
       from.device});
}

void CollectiveKernel::wait(PendingRequests& requests) {
  deadline_.resume();
  for (const PendingRequests::Pending& each : requests.pending_) {
    while (!each.request->wait_until(deadline_.next_poll())) {
      if (communicator_.is_stopped()) communicator_.fail_stopped();
      communicator_.note_waiting(device_, {each.device});
      if (deadline_.poll()) communicator_.fail_timed_out(device_, {each.device}, deadline_);
      if (deadline_.nearly_expired()) communicator_.exchange_positions();
    }
  }
  requests.pending_.clear();
}

void CollectiveKernel::all_gather_parts(const SourceOf& source, const std::byte* own,
                                        std::byte* out, std::byte* scratch) {
  PendingRequests sends;
  if (topology_.spans_processes()) send_own_part(own, sends);
  for (const Member& member : topology_.local()) {
    const Source from = source(member);
    const Subarray to = info_->part(member.index);
    if (from.array == out && member.device == device_) continue;  // Already in place.
    copy_region(from.part, from.array, to, out);
    count_copied(member, to.bytes());
  }
  if (!topology_.spans_processes()) return;
  receive_parts(out, scratch);
  barrier();  // Each leader has received its peers' parts.
  for (const Member& member : topology_.remote()) {
    const Member& leader = topology_.leader(topology_.own_process(), member);
    if (leader.device == device_) continue;
    const Subarray to = info_->part(member.index);
    copy_region(to, output_of(leader), to, out);
    count_copied(leader, to.bytes());
  }
  wait(sends);
}

void CollectiveKernel::send_own_part(const std::byte* own, PendingRequests& requests) {
  const Subarray part = info_->part(topology_.self().index);
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

void CollectiveKernel::receive_parts(std::byte* out, std::byte* scratch) {
  PendingRequests contiguous;
  std::array<PendingRequests, kWindow> staged;
  struct Piece {
    const Member* from;
    Subarray part;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (const Member& member : topology_.peers()) {
    const Subarray to = info_->part(member.index);
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

namespace {

class GatherKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 private:
  void communicate(const HostArgs& args) override {
    all_gather_parts(
        [this](const Member& local) {
          return Source{info().shard(), input_of(local)};
        },
        args.inputs[0], args.outputs[0], args.scratch);
  }
};

// Each pair of members exchanges only what the two need.
class ExchangeKernel final : public CollectiveKernel {
 public:
  ExchangeKernel(CpuCommunicator& communicator, int64_t device,
                 std::shared_ptr<const CollectiveInfo> shared)
      : CollectiveKernel(communicator, device, std::move(shared)), remote_(topology().remote()) {}

 private:
  void communicate(const HostArgs& args) override {
    if (info().op == &kPermuteOp) return permute(args);
    const int64_t own = topology().self().index;
    for (const Member& member : topology().local()) {
      const Subarray from = info().part_to(own);
      copy_region(from, input_of(member), info().part_from(member.index), args.outputs[0]);
      count_copied(member, from.bytes());
    }
    if (!remote_.empty()) exchange_with_remote(args);
  }

  // In rounds of one piece of each part, double-buffered: one round is sent while the next is
  // packed.
  void exchange_with_remote(const HostArgs& args) {
    const int64_t piece = piece_bytes(4 * (info().size() - 1));
    const int64_t bytes = info().part_to(0).bytes();
    const auto members = std::ssize(remote_);
    std::array<PendingRequests, 2> sends, receives;
    const auto buffer = [&](int64_t round, int64_t number) {
      return args.scratch + (round % 2 * 2 * members + number) * piece;
    };
    const auto finish = [&](int64_t round) {
      wait(receives[static_cast<size_t>(round % 2)]);
      const int64_t begin = round * piece, end = std::min(begin + piece, bytes);
      for (int64_t i = 0; i < members; ++i) {
        const Subarray to = info().part_from(remote_[static_cast<size_t>(i)].index);
        to.unpack(buffer(round, members + i), begin, end, args.outputs[0]);
      }
    };
    const int64_t rounds = (bytes + piece - 1) / piece;
    for (int64_t round = 0; round < rounds; ++round) {
      const auto half = static_cast<size_t>(round % 2);
      wait(sends[half]);
      const int64_t begin = round * piece, end = std::min(begin + piece, bytes);
      const auto size = static_cast<size_t>(end - begin);
      for (int64_t i = 0; i < members; ++i) {
        const Member& member = remote_[static_cast<size_t>(i)];
        receive(member, {buffer(round, members + i), size}, receives[half]);
        info().part_to(member.index).pack(args.inputs[0], begin, end, buffer(round, i));
        send(member, {buffer(round, i), size}, sends[half]);
      }
      if (round > 0) finish(round - 1);
    }
    if (rounds > 0) finish(rounds - 1);
    for (PendingRequests& each : sends) wait(each);
  }

  void permute(const HostArgs& args) {
    const auto bytes = static_cast<size_t>(info().bytes_in());
    PendingRequests requests;
    for (const Member& member : remote_) {
      if (member.device == info().to) send(member, {args.inputs[0], bytes}, requests);
      if (member.device == info().from) receive(member, {args.outputs[0], bytes}, requests);
    }
    for (const Member& member : topology().local()) {
      if (member.device != info().from) continue;
      if (bytes > 0) std::memcpy(args.outputs[0], input_of(member), bytes);
      count_copied(member, info().bytes_in());
    }
    wait(requests);
  }

  const std::vector<Member> remote_;
};

// Runs send and receive, the collective of two devices. Within a process the receiver copies.
class TransferKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 private:
  void communicate(const HostArgs& args) override {
    if (topology().spans_processes()) return exchange_message(args);
    for (const Member& member : topology().local()) {
      if (info().op == &kSendOp || member.device != info().from) continue;
      const int64_t bytes = info().bytes_out();
      if (bytes > 0) std::memcpy(args.outputs[0], input_of(member), static_cast<size_t>(bytes));
      count_copied(member, bytes);
    }
  }

  void exchange_message(const HostArgs& args) {
    const Member other = topology().remote().front();
    PendingRequests request;
    if (info().op == &kSendOp) {
      send(other, {args.inputs[0], static_cast<size_t>(info().bytes_in())}, request);
    } else {
      receive(other, {args.outputs[0], static_cast<size_t>(info().bytes_out())}, request);
    }
    wait(request);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_collective_kernel(CpuCommunicator& communicator, int64_t device,
                                               const Graph& graph, const Node& node) {
  auto info = std::make_shared<const CollectiveInfo>(read_collective(graph, node));
  CHECK(info->group[static_cast<size_t>(info->index)] == device, "device {} at index {} of a group",
        device, info->index);
  if (info->op == &kAllGatherOp)
    return std::make_unique<GatherKernel>(communicator, device, std::move(info));
  if (info->op == &kAllToAllOp || info->op == &kPermuteOp)
    return std::make_unique<ExchangeKernel>(communicator, device, std::move(info));
  if (is_transfer(node))
    return std::make_unique<TransferKernel>(communicator, device, std::move(info));
  return make_reduce_kernel(communicator, device, std::move(info));
}

}  // namespace tessera
