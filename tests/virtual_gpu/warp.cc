// SPDX-License-Identifier: Apache-2.0
// Runs a warp: lanes at the lowest program counter run first, so that diverged lanes reconverge.
#include "tests/virtual_gpu/warp.h"

#include <algorithm>
#include <climits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/virtual_gpu/text.h"

namespace tessera::virtual_gpu {
namespace {

std::string place_of(const Module& module, const Kernel& kernel, const Instruction& i) {
  const Location& at = kernel.locations[static_cast<size_t>(i.location)];
  const auto file = [&](int number) {
    const auto found = module.files.find(number);
    return found == module.files.end() ? std::string("unknown file") : found->second;
  };
  if (at.line == 0) return "unknown line (compiled without -lineinfo)";
  std::string place = fmt::format("{}:{}", file(at.file), at.line);
  if (at.outer_line)
    place += fmt::format(" (inlined at {}:{})", file(at.outer_file), at.outer_line);
  return place;
}

}  // namespace

std::string text_of(const Kernel& kernel, const Instruction& i) {
  return fmt::format("{}", fmt::join(words(kernel.texts[static_cast<size_t>(i.text)]), " "));
}

Warp::Warp(Block& block, int index, const Kernel& kernel)
    : block(block),
      index(index),
      kernel(kernel),
      constants(&block.launch.constants),
      registers(std::make_unique_for_overwrite<Row[]>(static_cast<size_t>(kernel.rows))),
      defined(static_cast<size_t>(kernel.rows)) {}

void Warp::start(uint32_t present) {
  lanes = present_ = present;
  std::ranges::fill(defined, 0u);
  fragments.assign(1, Fragment{0, present});
  for (CopyQueue& queue : copies) queue = {};
}

void Warp::fault(const Instruction& i, int lane, const std::string& what) const {
  const auto& size = block.launch.grid.threads;
  const uint32_t t = static_cast<uint32_t>(thread(lane));
  throw Fault{fmt::format("kernel {}, {}: {}; block {}, thread ({}, {}, {}), instruction `{}`",
                          kernel.info.name, place_of(block.launch.module, kernel, i), what,
                          block.position(), t % size[0], t / size[0] % size[1],
                          t / size[0] / size[1], text_of(kernel, i))};
}

bool Warp::run() {
  bool moved = false;
  while (true) {
    const auto ready =
        std::ranges::find_if(fragments, [](const Fragment& f) { return !f.blocked; });
    if (ready == fragments.end()) break;
    const auto next = std::next(ready);
    moved = true;
    advance(static_cast<size_t>(ready - fragments.begin()),
            next == fragments.end() ? INT_MAX : next->pc);
    if (block.launch.paused) return true;
  }
  check_blocked();
  return moved;
}

void Warp::insert(Fragment fragment) {
  const auto at = std::ranges::lower_bound(fragments, fragment.pc, {}, &Fragment::pc);
  if (at != fragments.end() && at->pc == fragment.pc) {
    at->mask |= fragment.mask;
    at->blocked = false;  // It may be able to run now.
  } else {
    fragments.insert(at, fragment);
  }
}

uint32_t Warp::guard(const Instruction& i, uint32_t mask) const {
  if (i.guard == kNoOperand) return mask;
  if (i.guard >= 0 && (mask & ~defined[i.guard]))
    fault(i, std::countr_zero(mask & ~defined[i.guard]), "an uninitialised predicate is used");
  return (i.negated ? ~predicate(i.guard) : predicate(i.guard)) & mask;
}

// Returns the lanes in which the predicate and the selected operand are defined. Compilers compute
// the other operand speculatively.
uint32_t Warp::defined_selection(const Instruction& i) const {
  const auto lanes = [&](Operand o) { return o >= 0 ? defined[o] : kAllLanes; };
  const uint32_t p = predicate(i.o[3]);
  return lanes(i.o[3]) & ((p & lanes(i.o[1])) | (~p & lanes(i.o[2])));
}

void Warp::execute(const Instruction& i, uint32_t mask) {
  uint32_t valid = kAllLanes;
  for (int k = i.outputs; k < i.outputs + i.inputs; ++k)
    if (i.o[k] >= 0) valid &= defined[i.o[k]];
  if (i.selects) valid = defined_selection(i);
  if (i.strict && (mask & ~valid))
    fault(i, std::countr_zero(mask & ~valid), "an uninitialised register is used");
  i.run(*this, i, mask);
  for (int k = 0; k < i.outputs; ++k) defined[i.o[k]] = (defined[i.o[k]] & ~mask) | (mask & valid);
}

// Pauses the launch before an instruction of a fragment, so that other blocks run.
void Warp::pause(Fragment& fragment, int pc) const {
  const Launch& launch = block.launch;
  if (launch.instructions >= launch.options.max_instructions)
    fault(kernel.code[static_cast<size_t>(pc)], std::countr_zero(fragment.mask),
          fmt::format("no end after {} instructions of warps: it waits for what never happens",
                      launch.instructions));
  fragment.pc = pc;
  block.launch.paused = true;
}

// Runs one fragment until it branches, waits, ends, or reaches `limit`, where others wait.
void Warp::advance(size_t number, int limit) {
  const uint32_t mask = fragments[number].mask;
  int pc = fragments[number].pc;
  Launch& launch = block.launch;
  while (pc < limit) {
    if (launch.instructions >= launch.pause_at) return pause(fragments[number], pc);
    ++launch.instructions;
    const Instruction& i = kernel.code[static_cast<size_t>(pc)];
    const uint32_t active = guard(i, mask);
    if (i.flow == Flow::kNext) {
      if (active) execute(i, active);
      ++pc;
    } else if (active == 0) {
      ++pc;
    } else if (i.flow == Flow::kBranch && active == mask && fragments.size() == 1) {
      pc = i.target;
    } else {
      fragments[number].pc = pc;
      return transfer(number, i, active);
    }
  }
  fragments.erase(fragments.begin() + static_cast<ptrdiff_t>(number));
  insert({pc, mask});
}

// Executes an instruction that changes what the lanes of a fragment run next.
void Warp::transfer(size_t number, const Instruction& i, uint32_t active) {
  const Fragment old = fragments[number];
  fragments.erase(fragments.begin() + static_cast<ptrdiff_t>(number));
  const auto go_on = [&](uint32_t mask, int pc) {
    if (mask) insert({pc, mask});
  };
  go_on(old.mask & ~active, old.pc + 1);
  switch (i.flow) {
    case Flow::kNext:
      break;
    case Flow::kBranch:
      go_on(active, i.target);
      break;
    case Flow::kTable: {
      const auto& targets = kernel.tables[static_cast<size_t>(i.target)];
      for_lanes(active, [&](int lane) {
        const uint64_t entry = static_cast<uint32_t>(row(i.o[0])[lane]);
        if (entry >= targets.size()) fault(i, lane, "branch beyond its table");
        go_on(1u << lane, targets[entry]);
      });
      break;
    }
    case Flow::kExit:
      end_lanes(i, active);
      break;
    case Flow::kBarrier:
      reach_barrier({old.pc, active}, i);
      break;
    case Flow::kWarp:
      if (ready_to_meet(i, active)) {
        execute(i, active);
        go_on(active, old.pc + 1);
      } else {
        insert({old.pc, active, true});
      }
      break;
  }
}

void Warp::end_lanes(const Instruction& i, uint32_t mask) {
  for_lanes(mask, [&](int lane) {
    if (!copies[static_cast<size_t>(lane)].copies.empty())
      fault(i, lane, "ends with asynchronous copies (cp.async) that it did not wait for");
  });
  lanes &= ~mask;
}

// Whether all lanes of the instruction's mask have reached it.
bool Warp::ready_to_meet(const Instruction& i, uint32_t active) const {
  uint32_t wanted = kAllLanes;
  const int first = std::countr_zero(active);
  if (i.target >= 0) {  // The operand with the mask of lanes.
    wanted = static_cast<uint32_t>(row(i.o[static_cast<size_t>(i.target)])[first]);
    if (active & ~wanted)
      fault(i, std::countr_zero(active & ~wanted),
            fmt::format("the lane is not in the instruction's mask of lanes 0x{:08x}", wanted));
  }
  if (wanted & ~lanes)
    fault(i, first,
          fmt::format("lanes 0x{:08x} of the warp are needed, but have ended", wanted & ~lanes));
  return (wanted & ~active) == 0;
}

void Warp::reach_barrier(Fragment fragment, const Instruction& i) {
  const int first = std::countr_zero(fragment.mask);
  fragment.blocked = true;
  if (fragment.mask != lanes) return insert(fragment);  // Wait for the other lanes.
  if (lanes != present_)
    fault(i, first,
          fmt::format("divergent barrier: lanes 0x{:08x} of the warp have ended before",
                      present_ & ~lanes));
  // Operands: [result], barrier, [threads], [predicate].
  const auto value = [&](int k) { return static_cast<uint32_t>(row(i.o[k])[first]); };
  const bool reduces = i.outputs > 0;
  const int counted = i.inputs - 1 - (reduces ? 1 : 0);
  const uint32_t expected = counted > 0 ? value(i.outputs + 1) : 0;
  uint32_t votes = 0;
  if (reduces) {
    votes = predicate(i.o[static_cast<size_t>(i.outputs + i.inputs - 1)]);
    votes = static_cast<uint32_t>(std::popcount((i.negated_input ? ~votes : votes) & lanes));
  }
  const bool waits = i.mode != kBarrierArrive;
  fragment.blocked = waits;
  if (!waits) ++fragment.pc;
  insert(fragment);
  block.arrive(*this, i, value(i.outputs), expected, waits, votes);
}

void Warp::pass_barrier(uint64_t result) {
  Fragment& fragment = fragments.front();
  const Instruction& i = kernel.code[static_cast<size_t>(fragment.pc)];
  if (i.outputs) {
    const Operand o = i.o[0];
    if (i.mode == kBarrierCount) {
      write(o, lanes, [&](int) { return result; });
    } else {
      write_predicate(o, lanes, result ? kAllLanes : 0);
    }
    defined[o] |= lanes;
  }
  ++fragment.pc;
  fragment.blocked = false;
}

// All lanes wait: at one barrier, or for lanes that cannot arrive.
void Warp::check_blocked() const {
  if (fragments.empty()) return;
  const Fragment& first = fragments.front();
  const Instruction& i = kernel.code[static_cast<size_t>(first.pc)];
  if (i.flow == Flow::kBarrier && first.mask == present_) return;
  std::string others;
  for (size_t k = 1; k < fragments.size(); ++k) {
    const auto& other = kernel.code[static_cast<size_t>(fragments[k].pc)];
    others += fmt::format("; lanes 0x{:08x} wait at {}", fragments[k].mask,
                          place_of(block.launch.module, kernel, other));
  }
  if (present_ != lanes) others += fmt::format("; lanes 0x{:08x} have ended", present_ & ~lanes);
  fault(i, std::countr_zero(first.mask),
        fmt::format(
            "{}: only lanes 0x{:08x} of the warp reach it{}",
            i.flow == Flow::kBarrier ? "divergent barrier" : "warp instruction in diverged code",
            first.mask, others));
}

}  // namespace tessera::virtual_gpu
