// SPDX-License-Identifier: Apache-2.0
// Runs launches: blocks in sequence, their warps interleaved between barriers.
#include "tests/virtual_gpu/interpreter.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "tests/virtual_gpu/warp.h"

namespace tessera::virtual_gpu {
namespace {

// Sets the row of a special register (index of kSpecialNames) for the lanes of a warp.
void set_special(int special, const Block& block, const Warp& warp, Row& row) {
  const Grid& grid = block.launch.grid;
  const auto& size = grid.threads;
  const uint32_t uniform[] = {size[0],
                              size[1],
                              size[2],
                              block.at[0],
                              block.at[1],
                              block.at[2],
                              grid.blocks[0],
                              grid.blocks[1],
                              grid.blocks[2],
                              0,
                              static_cast<uint32_t>(warp.index),
                              static_cast<uint32_t>(block.warps.size())};
  static_assert(kSpecialNames[3] == "%ntid.x" && kSpecialNames[14] == "%nwarpid");
  if (special >= 3 && special <= 14) row.fill(uniform[special - 3]);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto thread = static_cast<uint32_t>(warp.thread(lane));
    const uint32_t bit = 1u << lane, below = bit - 1;
    if (special == 0) row[lane] = thread % size[0];
    if (special == 1) row[lane] = thread / size[0] % size[1];
    if (special == 2) row[lane] = thread / size[0] / size[1];
    if (special == 12) row[lane] = static_cast<uint64_t>(lane);
    if (special < 15) continue;
    const uint64_t masks[] = {bit,         below,
                              bit | below, static_cast<uint32_t>(~(bit | below)),
                              ~below,      grid.dynamic_shared_bytes,
                              0,           0};
    static_assert(std::size(masks) + 15 == std::size(kSpecialNames));
    row[lane] = masks[special - 15];
  }
}

std::string thread_text(const Block& block, int thread) {
  const auto& size = block.launch.grid.threads;
  const auto t = static_cast<uint32_t>(thread);
  return fmt::format("({}, {}, {})", t % size[0], t / size[0] % size[1], t / size[0] / size[1]);
}

std::string conflict_text(const Conflict& conflict, const Block& block, Access access) {
  if (conflict.kind == Conflict::kUnwritten) return "shared memory is read but was never written";
  if (conflict.kind == Conflict::kCopy) {
    return "race: an asynchronous copy (cp.async) to it is in flight; wait for it "
           "(cp.async.wait_group) first";
  }
  static constexpr const char* kKinds[] = {"", "a store", "a load", "an atomic"};
  const std::string pair = fmt::format("race: {} is unordered with {} by ",
                                       access == Access::kAtomic ? "atomic"
                                       : reads(access)           ? "load"
                                                                 : "store",
                                       kKinds[conflict.kind]);
  if (conflict.other_block) return pair + "another block of the launch";
  if (conflict.thread < 0) return pair + "other threads of the block; a barrier is missing";
  return pair + "thread " + thread_text(block, conflict.thread) +
         " of the block; a barrier is missing";
}

template <typename T>
void shuffle(std::vector<T>& items, std::mt19937_64& random) {
  for (size_t n = items.size(); n > 1; --n) std::swap(items[n - 1], items[random() % n]);
}

uint32_t product(const std::array<uint32_t, 3>& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

uint32_t dynamic_begin(const Kernel& kernel) {
  return (static_cast<uint32_t>(kernel.info.static_shared_bytes) + 15) / 16 * 16;
}

}  // namespace

const GlobalMemory::Part& GlobalMemory::look_up(uint64_t address, uint32_t bytes) {
  Allocation& allocation = memory_.find(address, bytes);
  auto& [known, shadow] = parts_[allocation.address];
  if (!known) {
    known = &allocation;
    if (shadowed_) shadow = std::make_unique<Shadow>(allocation.bytes, true);
  }
  last_ = {known, shadow.get()};
  recent_[next_++ % recent_.size()] = last_;
  return last_;
}

AccessLog GlobalMemory::log() const {
  AccessLog log;
  for (const auto& [address, part] : parts_)
    if (part.second) part.second->log(address, log);
  return log;
}

void GlobalMemory::renumber(uint32_t block_begin) {
  for (auto& [address, part] : parts_)
    if (part.second) part.second->renumber(block_begin);
}

Block::Block(Launch& launch)
    : launch(launch),
      threads(product(launch.grid.threads)),
      shared_bytes_(dynamic_begin(launch.kernel) + launch.grid.dynamic_shared_bytes),
      shared_(std::make_unique_for_overwrite<std::byte[]>(shared_bytes_)),
      shared_shadow_(shared_bytes_, false),
      local_(static_cast<size_t>(launch.kernel.local_bytes) * threads) {
  for (uint32_t first = 0; first < threads; first += kLanes)
    warps.push_back(std::make_unique<Warp>(*this, static_cast<int>(first / kLanes), launch.kernel));
}

std::string Block::position() const { return fmt::format("({}, {}, {})", at[0], at[1], at[2]); }

void Block::begin(std::array<uint32_t, 3> position) {
  at = position;
  launch.clocks.enter(order_);
  if (launch.clocks.full()) {
    if (launch.interleaved) throw Fault{"too many steps of blocks that run at the same time"};
    launch.clocks.renumber();
    launch.global.renumber(UINT32_MAX);
    shared_shadow_.renumber(UINT32_MAX);
  }
  launch.clocks.begin_block(static_cast<int>(warps.size()));
  barriers_ = {};
  std::ranges::fill(local_, std::byte{0xcd});
  for (auto& warp : warps) {
    const uint32_t left = threads - static_cast<uint32_t>(warp->index) * kLanes;
    warp->start(left >= kLanes ? kAllLanes : (1u << left) - 1);
    for (const auto& [special, o] : launch.kernel.specials) {
      set_special(special, *this, *warp, warp->registers[o]);
      warp->defined[o] = kAllLanes;
    }
  }
}

bool Block::go_on() {
  launch.clocks.enter(order_);
  launch.paused = false;
  std::vector<Warp*> order;
  for (auto& warp : warps) order.push_back(warp.get());
  while (true) {
    if (launch.options.seed) shuffle(order, launch.random);
    bool moved = false, left = false;
    for (Warp* warp : order) {
      moved |= warp->run();
      if (launch.paused) return false;
      left |= !warp->done();
    }
    if (!left) return true;
    if (!moved) fail_blocked();
  }
}

void Block::arrive(Warp& warp, const Instruction& i, uint32_t id, uint32_t expected, bool waits,
                   uint32_t votes) {
  const int lane = std::countr_zero(warp.lanes);
  if (id >= barriers_.size()) warp.fault(i, lane, fmt::format("barrier {}: there are 16", id));
  if (expected % kLanes)
    warp.fault(i, lane, fmt::format("barrier for {} threads: must be a multiple of 32", expected));
  Barrier& barrier = barriers_[id];
  if (barrier.warps && barrier.expected != expected)
    warp.fault(i, lane,
               fmt::format("barrier {} for {} threads: others wait there for {} (0: all)", id,
                           expected, barrier.expected));
  if (barrier.instruction && !expected && barrier.instruction != &i)
    warp.fault(i, lane,
               fmt::format("divergent barrier: other warps of the block wait at `{}` elsewhere",
                           text_of(launch.kernel, *barrier.instruction)));
  barrier.expected = expected;
  barrier.instruction = &i;
  barrier.warps |= 1u << warp.index;
  if (waits) barrier.waiting |= 1u << warp.index;
  barrier.threads += static_cast<uint32_t>(expected ? kLanes : std::popcount(warp.lanes));
  barrier.votes += votes;
  if (barrier.threads >= (expected ? expected : threads)) release(barrier);
}

void Block::release(Barrier& barrier) {
  const Barrier done = std::exchange(barrier, {});
  ++launch.counts.barriers;
  launch.clocks.synchronise(done.warps, done.waiting);
  const uint32_t all = warps.size() == kMaxWarps ? kAllLanes : (1u << warps.size()) - 1;
  if (launch.clocks.full() && done.waiting == all && !launch.interleaved) {
    const uint32_t begin = launch.clocks.block_begin();
    launch.clocks.renumber();
    launch.global.renumber(begin);
    shared_shadow_.renumber(begin);
  }
  const uint32_t mode = done.instruction->mode;
  const uint64_t result = mode == kBarrierAnd ? done.votes == done.threads : done.votes;
  for (auto& warp : warps)
    if (done.waiting >> warp->index & 1) warp->pass_barrier(result);
}

void Block::fail_blocked() {
  const auto& warp = **std::ranges::find_if(warps, [](const auto& w) { return !w->done(); });
  const Fragment& waiting = warp.fragments.front();
  std::string others;
  for (const auto& other : warps)
    if (other->done()) others += fmt::format(" {}", other->index);
  warp.fault(launch.kernel.code[static_cast<size_t>(waiting.pc)], std::countr_zero(waiting.mask),
             others.empty() ? std::string("deadlock: the barrier waits for threads that wait at "
                                          "another one")
                            : "divergent barrier: warps that have ended do not reach it:" + others);
}

std::byte* Block::access(const Warp& warp, const Instruction& i, int lane, Space space,
                         uint64_t address, uint32_t bytes, Access kind) {
  if (space == Space::kGeneric) {
    if (address >> 40) {
      space = Space::kGlobal;
    } else {
      const uint64_t window = address / kWindow * kWindow;
      space = window == kSharedWindow      ? Space::kShared
              : window == kLocalWindow     ? Space::kLocal
              : window == kParameterWindow ? Space::kParameter
                                           : Space::kGlobal;
      if (space != Space::kGlobal) address -= window;
    }
  }
  if (address & (bytes - 1))
    warp.fault(i, lane, fmt::format("misaligned access of {} bytes at 0x{:x}", bytes, address));
  if (space == Space::kShared) {
    if (kind != Access::kCopyEnd) launch.counts.shared_bytes += bytes;
    return access_shared(warp, i, lane, static_cast<uint32_t>(address), bytes, kind);
  }
  if (space == Space::kLocal || space == Space::kParameter)
    return access_private(warp, i, lane, space, address, bytes);
  launch.counts.global_bytes += bytes;
  return access_global(warp, i, lane, address, bytes, kind);
}

std::byte* Block::access_global(const Warp& warp, const Instruction& i, int lane, uint64_t address,
                                uint32_t bytes, Access kind) {
  const GlobalMemory::Part* part = nullptr;
  try {
    part = &launch.global.find(address, bytes);
  } catch (const Fault& f) {
    warp.fault(i, lane, (reads(kind) ? "load: " : "store: ") + f.text);
  }
  const uint64_t offset = address - part->allocation->address;
  uint8_t* const initialised = part->allocation->initialised.get() + offset;
  if (reads(kind) && std::memchr(initialised, 0, bytes))
    warp.fault(i, lane,
               fmt::format("global memory at 0x{:x} is read but was never written", address));
  if (!reads(kind)) std::memset(initialised, 1, bytes);
  if (kind == Access::kAtomic || kind == Access::kRelaxedRead)
    launch.clocks.read_strongly(warp.thread(lane), address);
  if (kind == Access::kAtomic || kind == Access::kRelaxedWrite)
    launch.clocks.write_strongly(warp.thread(lane), address, kind == Access::kRelaxedWrite);
  if (part->shadow) {
    const Conflict conflict =
        part->shadow->touch(kind, offset, bytes, warp.thread(lane), launch.clocks);
    if (conflict.kind && launch.options.check_races)
      warp.fault(i, lane,
                 fmt::format("{} at 0x{:x}", conflict_text(conflict, *this, kind), address));
  }
  return part->allocation->data.get() + offset;
}

std::byte* Block::access_shared(const Warp& warp, const Instruction& i, int lane, uint64_t address,
                                uint32_t bytes, Access kind) {
  if (address + bytes > shared_bytes_)
    warp.fault(i, lane,
               fmt::format("{} bytes at shared address {} are out of bounds: the block has "
                           "{} bytes",
                           bytes, address, shared_bytes_));
  const Conflict conflict =
      shared_shadow_.touch(kind, address, bytes, warp.thread(lane), launch.clocks);
  if (conflict.kind && (launch.options.check_races || conflict.kind == Conflict::kUnwritten))
    warp.fault(
        i, lane,
        fmt::format("{} at shared address {}", conflict_text(conflict, *this, kind), address));
  return shared_.get() + address;
}

std::byte* Block::access_private(const Warp& warp, const Instruction& i, int lane, Space space,
                                 uint64_t address, uint32_t bytes) {
  const bool local = space == Space::kLocal;
  const auto size =
      static_cast<uint64_t>(local ? launch.kernel.local_bytes : launch.kernel.parameter_bytes);
  if (address + bytes > size || address + bytes < address)
    warp.fault(i, lane,
               fmt::format("{} bytes at {} {} are out of bounds: there are {} bytes", bytes,
                           local ? "local address" : "parameter", address, size));
  if (local) return &local_[size * static_cast<uint64_t>(warp.thread(lane)) + address];
  return const_cast<std::byte*>(&launch.parameters[address]);  // The parser rejects stores to it.
}

const std::vector<uint64_t>& Module::addresses(Memory& memory, int device) const {
  const std::scoped_lock lock(mutex_);
  auto& known = addresses_[device];
  if (known.size() == variables.size()) return known;
  for (const Variable& variable : variables) {
    known.push_back(memory.allocate(device, variable.bytes));
    const Allocation& to = memory.find(known.back(), variable.bytes);
    std::memset(to.data.get(), 0, variable.bytes);
    std::memset(to.initialised.get(), 1, variable.bytes);
    std::ranges::copy(variable.initial, to.data.get());
  }
  return known;
}

void Module::forget_addresses() const {
  const std::scoped_lock lock(mutex_);
  addresses_.clear();
}

const KernelInfo* find_kernel(const Module& module, std::string_view name) {
  const Kernel* const kernel = module.kernel(name);
  return kernel != nullptr ? &kernel->info : nullptr;
}

namespace {

void check_launch(const Kernel& kernel, const Grid& grid, size_t parameter_bytes) {
  const uint64_t threads = uint64_t{grid.threads[0]} * grid.threads[1] * grid.threads[2];
  const auto fail = [&](const std::string& what) {
    throw Fault{fmt::format("launch of kernel {}: {}", kernel.info.name, what)};
  };
  if (threads == 0 || threads > 1024)
    fail(fmt::format("{} threads in a block; 1 to 1024 are possible", threads));
  if (std::ranges::count(grid.blocks, 0u)) fail("no blocks");
  if (parameter_bytes != static_cast<size_t>(kernel.parameter_bytes))
    fail(fmt::format("{} bytes of parameters; it takes {}", parameter_bytes,
                     kernel.parameter_bytes));
}

void fill_constants(Launch& launch, Memory& memory) {
  launch.constants.resize(launch.kernel.constants.size());
  for (size_t k = 0; k < launch.constants.size(); ++k)
    launch.constants[k].fill(launch.kernel.constants[k]);
  if (launch.kernel.fixups.empty()) return;
  const auto& addresses = launch.module.addresses(memory, launch.options.device);
  for (const Fixup& fixup : launch.kernel.fixups) {
    const uint64_t base = fixup.variable < 0 ? dynamic_begin(launch.kernel)
                                             : addresses[static_cast<size_t>(fixup.variable)];
    launch.constants[static_cast<size_t>(fixup.constant)].fill(base +
                                                               static_cast<uint64_t>(fixup.offset));
  }
}

// Runs the blocks of the grid in the launch's order, several of them interleaved.
void run_blocks(Launch& launch) {
  const auto& sizes = launch.grid.blocks;
  std::vector<uint64_t> order(uint64_t{sizes[0]} * sizes[1] * sizes[2]);
  std::iota(order.begin(), order.end(), uint64_t{0});
  if (launch.options.seed) shuffle(order, launch.random);
  size_t next = 0;
  const auto begin = [&](Block& block) {
    const uint64_t b = order[next++];
    block.begin({static_cast<uint32_t>(b % sizes[0]),
                 static_cast<uint32_t>(b / sizes[0] % sizes[1]),
                 static_cast<uint32_t>(b / sizes[0] / sizes[1])});
  };
  std::vector<std::unique_ptr<Block>> resident;
  const size_t most = std::clamp<size_t>(launch.options.resident_blocks, 1, order.size());
  while (resident.size() < most) begin(*resident.emplace_back(std::make_unique<Block>(launch)));
  launch.interleaved = most > 1;
  const uint64_t end = launch.options.max_instructions;
  while (!resident.empty()) {
    const size_t turn = launch.interleaved ? launch.random() % resident.size() : 0;
    constexpr uint64_t kTurn = 256;  // Most instructions per turn.
    launch.pause_at =
        launch.interleaved ? std::min(end, launch.instructions + 1 + launch.random() % kTurn) : end;
    if (!resident[turn]->go_on()) continue;
    if (next < order.size()) {
      begin(*resident[turn]);
    } else {
      resident.erase(resident.begin() + static_cast<ptrdiff_t>(turn));
    }
  }
}

}  // namespace

AccessLog run_kernel(const Module& module, const KernelInfo& info, const Grid& grid,
                     std::span<const std::byte> parameters, Memory& memory,
                     const RunOptions& options) {
  const Kernel* const found = module.kernel(info.name);
  if (found == nullptr) throw Fault{"the module has no kernel " + info.name};
  const Kernel& kernel = *found;
  check_launch(kernel, grid, parameters.size());
  Launch launch{module,  kernel,
                grid,    parameters,
                options, GlobalMemory(memory, options.check_races || options.log_accesses),
                {},      std::mt19937_64(options.seed),
                {}};
  fill_constants(launch, memory);
  run_blocks(launch);
  AccessLog log = options.log_accesses ? launch.global.log() : AccessLog{};
  log.counts = launch.counts;
  return log;
}

}  // namespace tessera::virtual_gpu
