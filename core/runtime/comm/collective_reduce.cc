// SPDX-License-Identifier: Apache-2.0
// Implements reduce_scatter and all_reduce. Each member reduces its own part: first over the local
// members, whose operands it reads, then over the partial results that the other processes send.
// MPI's reductions are not used, because their order of summation depends on the library, the
// message size and the number of processes; here it is fixed (see reduce_parts), so results are
// bitwise reproducible.
#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/runtime/comm/collective_kernel.h"

namespace tessera {
namespace {

constexpr int64_t kTile = 1024;  // Elements reduced at a time; a tile stays in the L1 cache.

struct Sum {
  template <typename T>
  static T of(T a, T b) {
    return a + b;
  }
};

struct Max {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a != a ? a : (a < b || b != b ? b : a);
    return a < b ? b : a;
  }
};

template <typename Stored, typename Held>
void load(const std::byte* source, int64_t at, int64_t count, Held* tile) {
  const auto* from = reinterpret_cast<const Stored*>(source) + at;
  for (int64_t i = 0; i < count; ++i) tile[i] = static_cast<Held>(from[i]);
}

// Reduces a tile by the tree described at reduce_parts().
template <typename Stored, typename Held, typename Op>
void reduce_tile(std::span<const std::byte* const> sources, int64_t at, int64_t count, Held* tile) {
  const auto source = [&](size_t i) { return reinterpret_cast<const Stored*>(sources[i]) + at; };
  if (sources.size() == 1) {
    load<Stored>(sources[0], at, count, tile);
  } else if (sources.size() == 2) {
    const Stored *a = source(0), *b = source(1);
    for (int64_t i = 0; i < count; ++i)
      tile[i] = Op::of(static_cast<Held>(a[i]), static_cast<Held>(b[i]));
  } else if (sources.size() == 4) {
    const Stored *a = source(0), *b = source(1), *c = source(2), *d = source(3);
    for (int64_t i = 0; i < count; ++i)
      tile[i] = Op::of(Op::of(static_cast<Held>(a[i]), static_cast<Held>(b[i])),
                       Op::of(static_cast<Held>(c[i]), static_cast<Held>(d[i])));
  } else {
    const size_t left = std::bit_floor(sources.size() - 1);
    alignas(64) Held other[kTile];
    reduce_tile<Stored, Held, Op>(sources.first(left), at, count, tile);
    reduce_tile<Stored, Held, Op>(sources.subspan(left), at, count, other);
    for (int64_t i = 0; i < count; ++i) tile[i] = Op::of(tile[i], other[i]);
  }
}

template <typename Stored, typename Held, typename Op>
void reduce_all(std::span<const std::byte* const> sources, std::byte* result, int64_t elements) {
  alignas(64) Held tile[kTile];
  auto* to = reinterpret_cast<Stored*>(result);
  for (int64_t at = 0; at < elements; at += kTile) {
    const int64_t count = std::min(kTile, elements - at);
    reduce_tile<Stored, Held, Op>(sources, at, count, tile);
    for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<Stored>(tile[i]);
  }
}

template <typename Stored, typename Held>
void reduce_as(Reduction reduction, std::span<const std::byte* const> sources, std::byte* result,
               int64_t elements) {
  if (reduction == Reduction::kSum) {
    reduce_all<Stored, Held, Sum>(sources, result, elements);
  } else {
    reduce_all<Stored, Held, Max>(sources, result, elements);
  }
}

// result[i] = sources[0][i] + sources[1][i] + …, as a binary tree over the sources whose left part
// is the largest power of two: groups of two, four, … neighbours can be summed beforehand without
// changing the bits of an f32. So if each process has a power of two of members, f32 results do not
// depend on the number of processes. bf16 is summed in f32 and rounded once. `result` is one of the
// sources or does not overlap any.
void reduce_parts(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                  std::byte* result, int64_t elements) {
  CHECK(!sources.empty());
  switch (dtype) {
    case DType::kF64:
      return reduce_as<double, double>(reduction, sources, result, elements);
    case DType::kF32:
      return reduce_as<float, float>(reduction, sources, result, elements);
    case DType::kBF16:
      return reduce_as<BFloat16, float>(reduction, sources, result, elements);
    case DType::kI32:
      return reduce_as<int32_t, int32_t>(reduction, sources, result, elements);
    case DType::kU32:
      return reduce_as<uint32_t, uint32_t>(reduction, sources, result, elements);
    case DType::kBool:
      break;
  }
  fail("{} cannot be reduced over devices; cast it to i32", dtype_name(dtype));
}

class ReduceKernel final : public CollectiveKernel {
 public:
  ReduceKernel(CpuCommunicator& communicator, int64_t device,
               std::shared_ptr<const CollectiveInfo> shared)
      : CollectiveKernel(communicator, device, std::move(shared)),
        sources_(std::max(topology().local().size(), topology().processes().size())) {
    for (int64_t index = 0; index < info().size(); ++index)
      longest_part_ = std::max(longest_part_, info().part(index).bytes());
    if (!topology().spans_processes()) return;
    buffers_ = topology().max_peers() + num_processes();
    piece_ = piece_bytes(2 * buffers_);
  }

 private:
  void communicate(const HostArgs& args) override {
    const bool scatters = info().op == &kReduceScatterOp;
    const Subarray own = info().part(topology().self().index);
    std::byte* const result = args.outputs[0] + (scatters ? 0 : own.begin());
    if (topology().spans_processes()) {
      reduce_with_remote(own, result, args.scratch);
    } else {
      reduce_local(own, 0, own.bytes(), result);
    }
    if (scatters) return;
    barrier();  // All parts are reduced, so operands may be overwritten.
    all_gather_parts(
        [this](const Member& local) {
          return Source{info().part(local.index), output_of(local)};
        },
        result, args.outputs[0], args.scratch);
  }

  void reduce(size_t sources, std::byte* result, int64_t bytes) const {
    reduce_parts(info().reduction, info().dtype, {sources_.data(), sources}, result,
                 bytes / dtype_bytes(info().dtype));
  }

  // Reduces the bytes [from, to) of a part over the local members.
  void reduce_local(const Subarray& part, int64_t from, int64_t to, std::byte* result) {
    const std::vector<Member>& members = topology().local();
    part.for_each_run(from, to, [&](int64_t in_array, int64_t in_part, int64_t bytes) {
      for (size_t i = 0; i < members.size(); ++i) sources_[i] = input_of(members[i]) + in_array;
      reduce(members.size(), result + (in_part - from), bytes);
    });
    for (const Member& member : members) count_copied(member, to - from);
  }

  // Processes are combined in rounds of one piece of each part, double-buffered: one round is sent
  // while the next is reduced. Of the buffers of a round, the first are for one piece from each
  // process, the others for those that this leader sends to its peers.
  struct Rounds {
    std::byte* scratch = nullptr;
    std::array<PendingRequests, 2> sends, receives;
  };

  std::byte* buffer(const Rounds& rounds, int64_t round, int64_t number) const {
    return rounds.scratch + (round % 2 * buffers_ + number) * piece_;
  }
  int64_t end_of(const Subarray& part, int64_t round) const {
    return std::min((round + 1) * piece_, part.bytes());
  }

  void reduce_with_remote(const Subarray& own, std::byte* result, std::byte* scratch) {
    Rounds rounds{.scratch = scratch};
    const int64_t count = (longest_part_ + piece_ - 1) / piece_;
    for (int64_t round = 0; round < count; ++round) {
      begin_round(round, own, rounds);
      if (round > 0) finish_round(round - 1, own, result, rounds);
    }
    if (count > 0) finish_round(count - 1, own, result, rounds);
    for (PendingRequests& each : rounds.sends) wait(each);
  }

  void begin_round(int64_t round, const Subarray& own, Rounds& rounds) {
    PendingRequests& sends = rounds.sends[static_cast<size_t>(round % 2)];
    wait(sends);
    int64_t number = num_processes();
    const int64_t begin = round * piece_;
    for (const Member& peer : topology().peers()) {
      const Subarray part = info().part(peer.index);
      const int64_t end = end_of(part, round);
      if (begin >= end) continue;
      std::byte* const sum = buffer(rounds, round, number++);
      reduce_local(part, begin, end, sum);
      send(peer, {sum, static_cast<size_t>(end - begin)}, sends);
    }
    const auto bytes = static_cast<size_t>(std::max(begin, end_of(own, round)) - begin);
    for (size_t there = 0; there < topology().processes().size(); ++there) {
      if (there == topology().own_process()) continue;
      receive(topology().leader(there, topology().self()),
              {buffer(rounds, round, static_cast<int64_t>(there)), bytes},
              rounds.receives[static_cast<size_t>(round % 2)]);
    }
  }

  void finish_round(int64_t round, const Subarray& own, std::byte* result, Rounds& rounds) {
    wait(rounds.receives[static_cast<size_t>(round % 2)]);
    const int64_t begin = round * piece_, end = end_of(own, round);
    if (begin >= end) return;
    reduce_local(own, begin, end,
                 buffer(rounds, round, static_cast<int64_t>(topology().own_process())));
    for (int64_t i = 0; i < num_processes(); ++i)
      sources_[static_cast<size_t>(i)] = buffer(rounds, round, i);
    reduce(static_cast<size_t>(num_processes()), result + begin, end - begin);
  }

  int64_t num_processes() const { return std::ssize(topology().processes()); }

  std::vector<const std::byte*> sources_;
  int64_t longest_part_ = 0;
  int64_t buffers_ = 0;  // Per round.
  int64_t piece_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_reduce_kernel(CpuCommunicator& communicator, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info) {
  return std::make_unique<ReduceKernel>(communicator, device, std::move(info));
}

}  // namespace tessera
