// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomics, and asynchronous copies to shared memory.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "tests/virtual_gpu/access_row.h"
#include "tests/virtual_gpu/lanes.h"

namespace tessera::virtual_gpu {
namespace {

Type unsigned_type(int bytes) {
  return bytes == 1 ? Type::kU8 : bytes == 2 ? Type::kU16 : bytes == 4 ? Type::kU32 : Type::kU64;
}

// A fence of the whole GPU, after which other blocks may run.
void fence(Warp& w, const Instruction&, uint32_t mask) {
  Launch& launch = w.block.launch;
  launch.clocks.fence(w.index, mask);
  if (launch.interleaved) launch.pause_at = std::min(launch.pause_at, launch.instructions);
}
// Runs an access that orders blocks: an atomic, volatile, acquire or release access.
template <Handler Run>
void strongly(Warp& w, const Instruction& i, uint32_t mask) {
  Launch& launch = w.block.launch;
  if (i.releases) fence(w, i, mask);
  Run(w, i, mask);
  if (i.acquires) fence(w, i, mask);
  if (launch.interleaved) launch.pause_at = std::min(launch.pause_at, launch.instructions);
}

// Calls a function with the host address of each lane's bytes.
template <bool Writes, typename F>
void for_bytes(Warp& w, const Instruction& i, const Row& addresses, uint32_t bytes, uint32_t mask,
               F use) {
  const auto offset = static_cast<uint64_t>(i.offset);
  uintptr_t host = 0;
  if (!i.relaxed && w.block.access_row<Writes>(w, i.space, addresses, offset, mask, bytes, host))
    return for_lanes(mask, [&](int lane) {
      use(lane, reinterpret_cast<std::byte*>(host + addresses[lane] + offset));
    });
  const Access kind = Writes      ? i.relaxed ? Access::kRelaxedWrite : Access::kWrite
                      : i.relaxed ? Access::kRelaxedRead
                                  : Access::kRead;
  for_lanes(mask, [&](int lane) {
    use(lane, w.block.access(w, i, lane, i.space, addresses[lane] + offset, bytes, kind));
  });
}

template <typename T, int N>
void load(Warp& w, const Instruction& i, uint32_t mask) {
  const Operand address = i.o[N];
  constexpr uint32_t kBytes = sizeof(T) * N;
  Row* to[N];
  for (int k = 0; k < N; ++k) to[k] = &w.registers[i.o[static_cast<size_t>(k)]];
  const auto take = [&](int lane, const std::byte* from) {
    T values[N];
    std::memcpy(values, from, kBytes);
    for (int k = 0; k < N; ++k) (*to[k])[lane] = static_cast<uint64_t>(values[k]);
  };
  if (i.space == Space::kParameter && address < 0) {  // One value for all lanes.
    const int first = std::countr_zero(mask);
    const std::byte* const from = w.block.access(
        w, i, first, i.space, w.row(address)[first] + static_cast<uint64_t>(i.offset), kBytes,
        Access::kRead);
    return for_lanes(mask, [&](int lane) { take(lane, from); });
  }
  const Row addresses = w.row(address);  // An output may be the same row.
  for_bytes<false>(w, i, addresses, kBytes, mask, take);
}

template <typename T>
void store(Warp& w, const Instruction& i, uint32_t mask) {
  const int count = i.inputs - 1;
  const auto bytes = static_cast<uint32_t>(sizeof(T)) * static_cast<uint32_t>(count);
  for_bytes<true>(w, i, w.row(i.o[0]), bytes, mask, [&](int lane, std::byte* to) {
    T values[4];
    for (int k = 0; k < count; ++k) values[k] = static_cast<T>(w.row(i.o[1 + k])[lane]);
    std::memcpy(to, values, bytes);
  });
}

template <typename T, int N>
Handler load_of(const Instruction& i) {
  if constexpr (sizeof(T) * N <= 16) return i.relaxed ? strongly<load<T, N>> : load<T, N>;
  return nullptr;
}
Handler load_of(const Opcode& op, const Instruction& i) {
  const Type type = is_float(op.type()) ? unsigned_type(i.bytes) : op.type();
  return for_integer(type, [&](auto x) -> Handler {  // Signed: extended.
    using T = decltype(x);
    if (i.outputs == 4) return load_of<T, 4>(i);
    if (i.outputs == 2) return load_of<T, 2>(i);
    return i.outputs == 1 ? load_of<T, 1>(i) : nullptr;
  });
}
Handler store_of(const Instruction& i) {
  const bool fits = i.inputs <= 5 && i.bytes * (i.inputs - 1) <= 16;
  const Type type = unsigned_type(i.bytes);
  return fits ? for_integer(type,
                            [&](auto x) -> Handler {
                              using T = decltype(x);
                              return i.relaxed ? strongly<store<T>> : store<T>;
                            })
              : nullptr;
}

enum AtomicOp : uint32_t {
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompare,
  kIncrement,
  kDecrement
};

template <typename T>
T combine(uint32_t op, T old, T b, T c) {
  if (op == kAdd) return static_cast<T>(old + b);
  if (op == kMin) return std::min(old, b);
  if (op == kMax) return std::max(old, b);
  if (op == kExchange) return b;
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case kAnd:
        return old & b;
      case kOr:
        return old | b;
      case kXor:
        return old ^ b;
      case kCompare:
        return old == b ? c : old;
      case kIncrement:
        return old >= b ? T{0} : static_cast<T>(old + 1);
      case kDecrement:
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
      default:
        break;
    }
  }
  return old;
}

// Runs atomics lane by lane. `red` has no output.
template <typename T>
void atomic(Warp& w, const Instruction& i, uint32_t mask) {
  const Row addresses = w.row(i.o[i.outputs]);
  const auto value = [&](int k, int lane) {
    const uint64_t bits = k < i.inputs ? w.row(i.o[i.outputs + k])[lane] : 0;
    T x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  };
  for_lanes(mask, [&](int lane) {
    std::byte* const at =
        w.block.access(w, i, lane, i.space, addresses[lane] + static_cast<uint64_t>(i.offset),
                       sizeof(T), Access::kAtomic);
    T old;
    std::memcpy(&old, at, sizeof old);
    const T next = combine(i.mode, old, value(1, lane), value(2, lane));
    std::memcpy(at, &next, sizeof next);
    if (!i.outputs) return;
    uint64_t bits = 0;
    std::memcpy(&bits, &old, sizeof old);
    w.registers[i.o[0]][lane] = bits;
  });
}

Handler atomic_of(const Opcode& op, Instruction& i) {
  static constexpr std::string_view kNames[] = {"add", "min",  "max", "and", "or",
                                                "xor", "exch", "cas", "inc", "dec"};
  const auto* const name =
      std::ranges::find_if(kNames, [&](std::string_view part) { return op.has(part); });
  if (name == std::end(kNames)) return nullptr;
  i.mode = static_cast<uint32_t>(name - std::begin(kNames));
  if (op.type() == Type::kF32) return i.mode == kAdd ? strongly<atomic<float>> : nullptr;
  if (op.type() == Type::kF64) return i.mode == kAdd ? strongly<atomic<double>> : nullptr;
  return for_integer(op.type(),
                     [](auto zero) -> Handler { return strongly<atomic<decltype(zero)>>; });
}

void copy_bytes(Warp& w, const PendingCopy& copy) {
  std::byte* const to = w.block.shared_bytes(copy.to);
  if (copy.filled) {
    const auto& part = w.block.launch.global.find(copy.from, copy.filled);
    std::memcpy(to, part.allocation->data.get() + (copy.from - part.allocation->address),
                copy.filled);
  }
  std::memset(to + copy.filled, 0, copy.bytes - copy.filled);
}

// cp.async [shared], [global], bytes{, bytes that are not zeroed}. The destination is in flight
// until it was waited for; the seed decides whether the bytes move now or then.
void start_copy(Warp& w, const Instruction& i, uint32_t mask) {
  const auto row = [&](int k) -> const Row& { return w.row(i.o[static_cast<size_t>(k)]); };
  Launch& launch = w.block.launch;
  for_lanes(mask, [&](int lane) {
    const auto bytes = static_cast<uint32_t>(row(2)[lane]);
    const auto filled = i.inputs > 3 ? std::min(bytes, static_cast<uint32_t>(row(3)[lane])) : bytes;
    if (bytes != 4 && bytes != 8 && bytes != 16)
      w.fault(i, lane, fmt::format("cp.async of {} bytes; 4, 8 or 16 are possible", bytes));
    const uint64_t source = row(1)[lane] + static_cast<uint64_t>(i.offset2);
    if (source % bytes)
      w.fault(i, lane, fmt::format("misaligned access of {} bytes at 0x{:x}", bytes, source));
    const uint32_t piece = filled ? 1u << std::countr_zero(filled) : 1;
    for (uint32_t k = 0; k < filled; k += piece)
      w.block.access(w, i, lane, Space::kGlobal, source + k, piece, Access::kRead);
    CopyQueue& queue = w.copies[static_cast<size_t>(lane)];
    PendingCopy copy{static_cast<uint32_t>(row(0)[lane] + static_cast<uint64_t>(i.offset)), source,
                     bytes, filled, queue.groups};
    w.block.access(w, i, lane, Space::kShared, copy.to, bytes, Access::kCopyBegin);
    copy.moved = launch.options.seed && launch.random() % 2;
    if (copy.moved) copy_bytes(w, copy);
    queue.copies.push_back(copy);
  });
}

void commit_copies(Warp& w, const Instruction&, uint32_t mask) {
  for_lanes(mask, [&](int lane) { ++w.copies[static_cast<size_t>(lane)].groups; });
}

// cp.async.wait_group N: all but the last N groups. wait_all: also what is not in a group.
void wait_for_copies(Warp& w, const Instruction& i, uint32_t mask) {
  const uint64_t kept = i.inputs ? w.row(i.o[0])[0] : 0;
  if (i.inputs == 0) commit_copies(w, i, mask);
  for_lanes(mask, [&](int lane) {
    CopyQueue& queue = w.copies[static_cast<size_t>(lane)];
    const auto running = std::ranges::find_if(
        queue.copies, [&](const PendingCopy& copy) { return copy.group + kept >= queue.groups; });
    for (auto copy = queue.copies.begin(); copy != running; ++copy) {
      if (!copy->moved) copy_bytes(w, *copy);
      w.block.access(w, i, lane, Space::kShared, copy->to, copy->bytes, Access::kCopyEnd);
    }
    queue.copies.erase(queue.copies.begin(), running);
  });
}

Handler copy_of(const Opcode& op) {
  if (!op.has("async") || op.has("bulk") || op.has("mbarrier")) return nullptr;
  if (op.has("commit_group")) return commit_copies;
  return op.has("wait_group") || op.has("wait_all") ? wait_for_copies : start_copy;
}

// ldmatrix: lane 8 * m + r names row r of matrix m, 8 elements of 2 bytes. Lane l gets elements
// 2 * (l % 4) and the next of row l / 4; transposed: of column l / 4.
void load_matrix(Warp& w, const Instruction& i, uint32_t mask) {
  const Row addresses = w.row(i.o[i.outputs]);
  const bool transposed = i.mode;
  uint16_t elements[4][8][8];
  for_bytes<false>(w, i, addresses, 16, kAllLanes >> (kLanes - 8 * i.outputs),
                   [&](int lane, const std::byte* from) {
                     std::memcpy(elements[lane / 8][lane % 8], from, 16);
                   });
  for (int m = 0; m < i.outputs; ++m) {
    w.write(i.o[m], mask, [&](int lane) {
      const int a = lane / 4, b = lane % 4 * 2;
      const auto& matrix = elements[m];
      return transposed ? matrix[b][a] | uint64_t{matrix[b + 1][a]} << 16
                        : matrix[a][b] | uint64_t{matrix[a][b + 1]} << 16;
    });
  }
}

Space space_of(const Opcode& op, Space of_symbol) {
  if (of_symbol == Space::kLocal) return of_symbol;
  for (const std::string_view part : op.parts) {
    if (part == "global") return Space::kGlobal;
    if (part.starts_with("shared")) return Space::kShared;
    if (part == "local") return Space::kLocal;
    if (part.starts_with("param")) return Space::kParameter;
    if (part == "const") return Space::kConstant;
  }
  return Space::kGeneric;
}

void no_effect(Warp&, const Instruction&, uint32_t) {}
void trap(Warp& w, const Instruction& i, uint32_t mask) {
  w.fault(i, std::countr_zero(mask), "trap");
}

}  // namespace

Handler memory_handler(const Opcode& op, Instruction& i) {
  const std::string_view name = op.name();
  if (name == "trap") return trap;
  for (const std::string_view known : {"membar", "fence", "prefetch", "nanosleep"})
    if (name == known) {
      i.inputs = i.outputs = 0;
      const bool of_gpu = op.has("gl") || op.has("gpu") || op.has("sys");
      return of_gpu && !op.has("proxy") ? fence : no_effect;
    }
  if (name == "cp") return copy_of(op);
  i.space = space_of(op, i.space);
  if (name == "ldmatrix") {
    i.mode = op.has("trans");
    i.space = Space::kShared;
    i.flow = Flow::kWarp;
    return load_matrix;
  }
  for (const std::string_view word : {"volatile", "relaxed", "acquire", "release"})
    i.relaxed |= op.has(word);
  const bool of_gpu = op.has("gpu") || op.has("sys");
  i.acquires = of_gpu && (op.has("acquire") || op.has("acq_rel"));
  i.releases = of_gpu && (op.has("release") || op.has("acq_rel"));
  if (name == "ld" || name == "ldu") return load_of(op, i);
  if (name == "st" && i.space != Space::kParameter) return store_of(i);
  return name == "atom" || name == "red" ? atomic_of(op, i) : nullptr;
}

}  // namespace tessera::virtual_gpu
