// SPDX-License-Identifier: Apache-2.0
// The collectives that move data without arithmetic: all_gather, all_to_all and permute.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/runtime/comm/collective_kernel.h"

namespace tessera {
namespace {

class GatherKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 private:
  void communicate(const HostArgs& args) override {
    all_gather_parts([this](int64_t index) { return info().part(index); },
                     [this](const Member& local) {
                       return Source{info().shard(), input_of(local)};
                     },
                     args.inputs[0], args.outputs[0], args.scratch);
  }
};

// Each pair of members exchanges only what the two need.
class ExchangeKernel final : public CollectiveKernel {
 public:
  ExchangeKernel(CommunicatorState& state, int64_t device,
                 std::shared_ptr<const CollectiveInfo> shared)
      : CollectiveKernel(state, device, std::move(shared)), remote_(topology().remote()) {}

 private:
  void communicate(const HostArgs& args) override {
    if (info().kind == CollectiveKind::kPermute) return permute(args);
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
    const auto members = static_cast<int64_t>(remote_.size());
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

}  // namespace

std::unique_ptr<Kernel> make_gather_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info) {
  return std::make_unique<GatherKernel>(state, device, std::move(info));
}

std::unique_ptr<Kernel> make_exchange_kernel(CommunicatorState& state, int64_t device,
                                             std::shared_ptr<const CollectiveInfo> info) {
  return std::make_unique<ExchangeKernel>(state, device, std::move(info));
}

}  // namespace tessera
