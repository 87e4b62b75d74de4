// SPDX-License-Identifier: Apache-2.0
// reduce_scatter and all_reduce. Each member reduces its own part. Within a process it reads that
// part of all operands; of other processes it gets their sums, one a process. Everything is summed
// in the order of device numbers, so that results do not depend on timing; if the members of each
// process are a power of two, the bits of an f32 do not depend on processes either
// (reduce_parts.h).
#include <algorithm>
#include <array>
#include <utility>

#include "core/runtime/comm/collective_kernel.h"
#include "core/runtime/comm/reduce_parts.h"

namespace tessera {
namespace {

class ReduceKernel final : public CollectiveKernel {
 public:
  ReduceKernel(CommunicatorState& state, int64_t device,
               std::shared_ptr<const CollectiveInfo> shared)
      : CollectiveKernel(state, device, std::move(shared)),
        sources_(std::max(place().local().size(), place().processes().size())) {
    for (int64_t index = 0; index < info().size(); ++index)
      longest_part_ = std::max(longest_part_, info().part(index).bytes());
  }

 private:
  void communicate(const HostArgs& args) override {
    const bool scatters = info().kind == CollectiveKind::kReduceScatter;
    const Subarray own = info().part(place().self().index);
    std::byte* const result = args.outputs[0] + (scatters ? 0 : own.begin());
    if (place().spans_processes()) {
      reduce_across(own, result, args.scratch);
    } else {
      reduce_here(own, 0, own.bytes(), result);
    }
    if (scatters) return;
    meet();  // All parts are there, and no operand is needed any more.
    share_parts([this](int64_t index) { return info().part(index); },
                [this](const Member& local) {
                  return Source{info().part(local.index), output_of(local)};
                },
                result, args.outputs[0], args.scratch);
  }

  void reduce(size_t sources, std::byte* result, int64_t bytes) const {
    reduce_parts(info().reduction, info().dtype, {sources_.data(), sources}, result,
                 bytes / dtype_bytes(info().dtype));
  }

  // Of this process's members, the bytes [from, to) of a part.
  void reduce_here(const Subarray& part, int64_t from, int64_t to, std::byte* result) {
    const std::vector<Member>& members = place().local();
    part.for_each_run(from, to, [&](int64_t in_array, int64_t in_part, int64_t bytes) {
      for (size_t i = 0; i < members.size(); ++i) sources_[i] = input_of(members[i]) + in_array;
      reduce(members.size(), result + (in_part - from), bytes);
    });
    for (const Member& member : members) count_taken(member, to - from);
  }

  // In rounds of a piece of each part: while one travels, the next is reduced here.
  void reduce_across(const Subarray& own, std::byte* result, std::byte* scratch) {
    const auto processes = static_cast<int64_t>(place().processes().size());
    const int64_t buffers = place().most_charges() + processes;  // Of one round.
    const int64_t piece = piece_bytes(2 * buffers);
    std::array<Mail, 2> sent, received;
    const auto buffer = [&](int64_t round, int64_t number) {
      return scratch + (round % 2 * buffers + number) * piece;
    };
    const auto end_of = [&](const Subarray& part, int64_t round) {
      return std::min((round + 1) * piece, part.bytes());
    };
    const auto finish = [&](int64_t round) {
      const int64_t begin = round * piece, end = end_of(own, round);
      await(received[static_cast<size_t>(round % 2)]);
      if (begin >= end) return;
      const auto here = static_cast<int64_t>(place().own_process());
      reduce_here(own, begin, end, buffer(round, here));
      for (int64_t i = 0; i < processes; ++i) sources_[static_cast<size_t>(i)] = buffer(round, i);
      reduce(static_cast<size_t>(processes), result + begin, end - begin);
    };
    const int64_t rounds = (longest_part_ + piece - 1) / piece;
    for (int64_t round = 0; round < rounds; ++round) {
      Mail& out = sent[static_cast<size_t>(round % 2)];
      await(out);
      int64_t number = processes;  // Buffers before it hold what is received.
      for (const Member& charge : place().peers()) {
        const Subarray part = info().part(charge.index);
        const int64_t begin = round * piece, end = end_of(part, round);
        if (begin >= end) continue;
        std::byte* const sum = buffer(round, number++);
        reduce_here(part, begin, end, sum);
        send(charge, {sum, static_cast<size_t>(end - begin)}, out);
      }
      const int64_t begin = round * piece, end = std::max(begin, end_of(own, round));
      for (size_t there = 0; there < place().processes().size(); ++there) {
        if (there == place().own_process()) continue;
        receive(place().leader(there, place().self()),
                {buffer(round, static_cast<int64_t>(there)), static_cast<size_t>(end - begin)},
                received[static_cast<size_t>(round % 2)]);
      }
      if (round > 0) finish(round - 1);
    }
    if (rounds > 0) finish(rounds - 1);
    for (Mail& each : sent) await(each);
  }

  std::vector<const std::byte*> sources_;
  int64_t longest_part_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_reduce_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info) {
  return std::make_unique<ReduceKernel>(state, device, std::move(info));
}

}  // namespace tessera
