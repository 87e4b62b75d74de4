// SPDX-License-Identifier: Apache-2.0
// all_to_all and permute: each pair of members exchanges what only those two need.
#include <algorithm>
#include <array>
#include <utility>

#include "core/runtime/comm/collective_kernel.h"

namespace tessera {
namespace {

class ExchangeKernel final : public CollectiveKernel {
 public:
  ExchangeKernel(CommunicatorState& state, int64_t device,
                 std::shared_ptr<const CollectiveInfo> shared)
      : CollectiveKernel(state, device, std::move(shared)) {
    for (const std::vector<Member>& members : place().processes())
      if (members.front().process != place().self().process)
        remote_.insert(remote_.end(), members.begin(), members.end());
  }

 private:
  void communicate(const HostArgs& args) override {
    if (info().kind == CollectiveKind::kPermute) return permute(args);
    const int64_t own = place().self().index;
    for (const Member& member : place().local()) {
      const Subarray from = info().part_to(own);
      copy_region(from, input_of(member), info().part_from(member.index), args.outputs[0]);
      count_taken(member, from.bytes());
    }
    if (!remote_.empty()) exchange_across(args);
  }

  // In rounds of a piece of each part: while one travels, the next is packed.
  void exchange_across(const HostArgs& args) {
    const int64_t piece = piece_bytes(4 * (info().size() - 1));
    const int64_t bytes = info().part_to(0).bytes();
    const auto members = static_cast<int64_t>(remote_.size());
    std::array<Mail, 2> sent, received;
    const auto buffer = [&](int64_t round, int64_t number) {
      return args.scratch + (round % 2 * 2 * members + number) * piece;
    };
    const auto finish = [&](int64_t round) {
      await(received[static_cast<size_t>(round % 2)]);
      const int64_t begin = round * piece, end = std::min(begin + piece, bytes);
      for (int64_t i = 0; i < members; ++i) {
        info()
            .part_from(remote_[static_cast<size_t>(i)].index)
            .unpack(buffer(round, members + i), begin, end, args.outputs[0]);
      }
    };
    const int64_t rounds = (bytes + piece - 1) / piece;
    for (int64_t round = 0; round < rounds; ++round) {
      const auto half = static_cast<size_t>(round % 2);
      await(sent[half]);
      const int64_t begin = round * piece, end = std::min(begin + piece, bytes);
      const auto size = static_cast<size_t>(end - begin);
      for (int64_t i = 0; i < members; ++i) {
        const Member& member = remote_[static_cast<size_t>(i)];
        receive(member, {buffer(round, members + i), size}, received[half]);
        info().part_to(member.index).pack(args.inputs[0], begin, end, buffer(round, i));
        send(member, {buffer(round, i), size}, sent[half]);
      }
      if (round > 0) finish(round - 1);
    }
    if (rounds > 0) finish(rounds - 1);
    for (Mail& each : sent) await(each);
  }

  void permute(const HostArgs& args) {
    const auto bytes = static_cast<size_t>(info().bytes_in());
    Mail mail;
    for (const Member& member : remote_) {
      if (member.device == info().to) send(member, {args.inputs[0], bytes}, mail);
      if (member.device == info().from) receive(member, {args.outputs[0], bytes}, mail);
    }
    for (const Member& member : place().local()) {
      if (member.device != info().from) continue;
      if (bytes > 0) std::memcpy(args.outputs[0], input_of(member), bytes);
      count_taken(member, info().bytes_in());
    }
    await(mail);
  }

  std::vector<Member> remote_;  // Of other processes.
};

}  // namespace

std::unique_ptr<Kernel> make_exchange_kernel(CommunicatorState& state, int64_t device,
                                             std::shared_ptr<const CollectiveInfo> info) {
  return std::make_unique<ExchangeKernel>(state, device, std::move(info));
}

}  // namespace tessera
