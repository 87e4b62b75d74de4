// SPDX-License-Identifier: Apache-2.0
// Instructions of all lanes of a warp: shuffles, votes, reductions, matrix products, barriers.
#include <algorithm>
#include <bit>

#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {
namespace {

constexpr int32_t kLastOperand = -2;  // Holds the mask of lanes.

enum ShuffleMode : uint32_t { kUp, kDown, kButterfly, kIndex };

// shfl.sync d|p, a, b, c, mask. c: a clamp in bits 0 to 4, and the lanes' segment in bits 8 to 12.
template <uint32_t Mode>
void shuffle(Warp& w, const Instruction& i, uint32_t mask) {
  const int in = i.outputs;
  const Row a = w.row(i.o[in]), b = w.row(i.o[in + 1]), c = w.row(i.o[in + 2]);
  uint32_t inside = 0;
  std::array<int, kLanes> from;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int amount = static_cast<int>(b[lane] & 31), clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31);
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int source = lane;
    bool valid = false;
    switch (Mode) {
      case kUp:
        source = lane - amount, valid = source >= last;
        break;
      case kDown:
        source = lane + amount, valid = source <= last;
        break;
      case kButterfly:
        source = lane ^ amount, valid = source <= last;
        break;
      default:
        source = first | (amount & ~segment), valid = source <= last;
        break;
    }
    if (!valid) source = lane;
    from[static_cast<size_t>(lane)] = source;
    inside |= static_cast<uint32_t>(valid) << lane;
  }
  for_lanes(mask, [&](int lane) {
    if (!(mask >> from[static_cast<size_t>(lane)] & 1))
      w.fault(i, lane, "the shuffle reads from a lane that does not take part");
  });
  w.write(i.o[0], mask, [&](int lane) { return a[from[static_cast<size_t>(lane)]] & 0xffffffff; });
  if (i.outputs > 1) w.write_predicate(i.o[1], mask, inside);
}

enum VoteMode : uint32_t { kAll, kAny, kUniform, kBallot };

void vote(Warp& w, const Instruction& i, uint32_t mask) {
  const uint32_t given = w.predicate(i.o[1]);
  const uint32_t set = (i.negated_input ? ~given : given) & mask;
  if (i.mode == kBallot) return w.write(i.o[0], mask, [&](int) { return uint64_t{set}; });
  const bool result = i.mode == kAll   ? set == mask
                      : i.mode == kAny ? set != 0
                                       : set == mask || !set;
  w.write_predicate(i.o[0], mask, result ? kAllLanes : 0);
}

void active_lanes(Warp& w, const Instruction& i, uint32_t mask) {
  w.write(i.o[0], mask, [&](int) { return uint64_t{mask}; });
}

// match.any: the lanes with the same value. match.all: all lanes if all have the same.
void match(Warp& w, const Instruction& i, uint32_t mask) {
  const Row a = w.row(i.o[i.outputs]);
  const uint64_t low = i.bytes == 4 ? 0xffffffff : ~uint64_t{0};
  Row equal{};
  for_lanes(mask, [&](int lane) {
    for_lanes(mask, [&](int other) {
      if ((a[lane] & low) == (a[other] & low)) equal[lane] |= uint64_t{1} << other;
    });
  });
  const bool all = equal[std::countr_zero(mask)] == mask;
  w.write(i.o[0], mask, [&](int lane) { return i.mode ? equal[lane] : all ? mask : 0; });
  if (i.outputs > 1) w.write_predicate(i.o[1], mask, all ? kAllLanes : 0);
}

template <typename T, auto F>
void reduce(Warp& w, const Instruction& i, uint32_t mask) {
  const Row& a = w.row(i.o[1]);
  T result = static_cast<T>(a[std::countr_zero(mask)]);
  for_lanes(mask & (mask - 1), [&](int lane) { result = F(result, static_cast<T>(a[lane])); });
  w.write(i.o[0], mask, [&](int) { return uint64_t{static_cast<uint32_t>(result)}; });
}
constexpr auto kSum = [](auto a, auto b) {
  return static_cast<decltype(a)>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
};
constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };
constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
Handler reduce_of(const Opcode& op) {
  if (op.has("and")) return reduce<uint32_t, kAnd>;
  if (op.has("or")) return reduce<uint32_t, kOr>;
  if (op.has("xor")) return reduce<uint32_t, kXor>;
  if (op.has("add")) return reduce<uint32_t, kSum>;
  const bool sign = is_signed(op.type());
  if (op.has("min")) return sign ? reduce<int32_t, kMin> : reduce<uint32_t, kMin>;
  if (op.has("max")) return sign ? reduce<int32_t, kMax> : reduce<uint32_t, kMax>;
  return nullptr;
}

// mma.sync m16n8k16 of bf16, f32 sums. Lane l holds rows l / 4 and l / 4 + 8 of A and C, column
// l / 4 of B (PTX ISA, "Matrix Fragments for mma.m16n8k16"). Elements lie in pairs along k.
void multiply(Warp& w, const Instruction& i, uint32_t mask) {
  ++w.block.launch.counts.matrix_products;
  float a[16][16], b[16][8], c[16][8];
  const Operand* const in = i.o.data() + 4;
  const auto at = [](uint64_t bits, int half) { return float_of(bits >> (16 * half) << 16); };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane / 4, column = lane % 4;
    for (int r = 0; r < 4; ++r)
      for (int h = 0; h < 2; ++h)
        a[row + r % 2 * 8][r / 2 * 8 + column * 2 + h] = at(w.row(in[r])[lane], h);
    for (int r = 0; r < 2; ++r)
      for (int h = 0; h < 2; ++h) b[r * 8 + column * 2 + h][row] = at(w.row(in[4 + r])[lane], h);
    for (int r = 0; r < 4; ++r)
      c[row + r / 2 * 8][column * 2 + r % 2] = float_of(w.row(in[6 + r])[lane]);
  }
  for (int y = 0; y < 16; ++y)
    for (int k = 0; k < 16; ++k)
      for (int x = 0; x < 8; ++x) c[y][x] += a[y][k] * b[k][x];
  for (int r = 0; r < 4; ++r)
    w.write(i.o[r], mask,
            [&](int lane) { return bits_of(c[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]); });
}

Handler multiply_of(const Opcode& op) {
  const std::vector<Type> types = {Type::kF32, Type::kBf16, Type::kBf16, Type::kF32};
  const bool known = op.types == types && op.has("m16n8k16") && op.has("row") && op.has("col");
  return known ? multiply : nullptr;
}

void meet(Warp& w, const Instruction&, uint32_t) {
  w.block.launch.clocks.synchronise(1u << w.index, 1u << w.index);
}

// Barriers of the block. Warp::reach_barrier executes them.
Handler barrier_of(const Opcode& op, Instruction& i) {
  if (op.has("warp")) {
    i.flow = Flow::kWarp;
    i.target = kLastOperand;
    return meet;
  }
  i.flow = Flow::kBarrier;
  i.mode = op.has("arrive") ? kBarrierArrive
           : op.has("popc") ? kBarrierCount
           : op.has("and")  ? kBarrierAnd
           : op.has("or")   ? kBarrierOr
                            : kBarrierSync;
  return nullptr;
}

template <typename Names>
uint32_t index_of(const Opcode& op, const Names& names) {
  const auto* const found =
      std::ranges::find_if(names, [&](std::string_view part) { return op.has(part); });
  return static_cast<uint32_t>(found - std::begin(names));
}

Handler synchronised(const Opcode& op, Instruction& i) {
  static constexpr std::string_view kShuffles[] = {"up", "down", "bfly", "idx"};
  static constexpr std::string_view kVotes[] = {"all", "any", "uni", "ballot"};
  static constexpr Handler kShuffleHandlers[] = {shuffle<kUp>, shuffle<kDown>, shuffle<kButterfly>,
                                                 shuffle<kIndex>, nullptr};
  if (op.name() == "shfl") return kShuffleHandlers[index_of(op, kShuffles)];
  if (op.name() == "vote") {
    i.mode = index_of(op, kVotes);
    return vote;
  }
  if (op.name() == "match") {
    i.mode = op.has("any");
    return match;
  }
  return op.name() == "redux" ? reduce_of(op) : nullptr;
}

}  // namespace

Handler warp_handler(const Opcode& op, Instruction& i) {
  if (op.name() == "bar" || op.name() == "barrier") {
    const Handler handler = barrier_of(op, i);
    if (i.target == kLastOperand) i.target = i.outputs + i.inputs - 1;
    return handler;
  }
  if (op.name() == "activemask") return active_lanes;
  if (!op.has("sync")) return nullptr;
  if (op.name() == "mma") {
    i.flow = Flow::kWarp;
    return multiply_of(op);
  }
  const Handler handler = synchronised(op, i);
  if (handler) {
    i.flow = Flow::kWarp;
    i.target = i.outputs + i.inputs - 1;
  }
  return handler;
}

}  // namespace tessera::virtual_gpu
