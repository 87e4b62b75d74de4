// SPDX-License-Identifier: Apache-2.0
#include "core/compile/memory/footprints.h"

#include <algorithm>

namespace tessera {
namespace {

uint64_t bit_of(BufferId buffer) { return uint64_t{1} << (buffer.index() % 64); }

}  // namespace

Footprints::Footprints(const FlatProgram& program) : footprints_(program.launches.size()) {
  for (const LaunchId id : program.launches.ids()) {
    const FlatLaunch& launch = program.launches[id];
    Footprint& it = footprints_[id];
    it.reads = launch.inputs;
    it.writes = launch.outputs;
    const bool has_parts = std::ranges::any_of(launch.outputs, [&](const FlatValue& value) {
      return program.buffers[value.buffer].parent != kNone;
    });
    if (has_parts) {
      const std::span<FlatValue> roots = roots_.add(launch.outputs);
      for (FlatValue& value : roots) value = program.root(value);
      it.writes = roots;
    }
    it.scratch = launch.scratch;
    for (const FlatValue& value : it.reads) it.buffers |= bit_of(value.buffer);
    for (const FlatValue& value : it.writes) it.buffers |= bit_of(value.buffer);
    if (it.scratch != kNone) it.buffers |= bit_of(it.scratch);
  }
}

bool depends(const Footprint& later, const Footprint& earlier) {
  if ((later.buffers & earlier.buffers) == 0) return false;
  const auto meet = [](std::span<const FlatValue> ones, std::span<const FlatValue> others) {
    return std::any_of(ones.begin(), ones.end(), [&](FlatValue one) {
      return std::any_of(others.begin(), others.end(),
                         [&](FlatValue other) { return overlaps(one, other); });
    });
  };
  return meet(earlier.writes, later.reads) || meet(earlier.writes, later.writes) ||
         meet(earlier.reads, later.writes) ||
         (later.scratch != kNone && later.scratch == earlier.scratch);
}

}  // namespace tessera
