// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/memory_curve.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace tessera {

std::vector<MemoryAt> memory_curve(const StepProgram& step) {
  const auto launches = static_cast<int64_t>(step.launches.size());
  const auto begin_of = [](const PackedBlock* block) { return std::max<int64_t>(block->first, 0); };
  const auto is_used = [&](const PackedBlock& block) {
    return block.first <= block.last && begin_of(&block) < launches;
  };
  std::vector<int64_t> freed(step.launches.size() + 1, 0);  // Bytes freed before each launch.
  std::vector<size_t> begins(step.launches.size() + 1, 0);  // Positions in `blocks`.
  for (const PackedBlock& block : step.blocks) {
    if (!is_used(block)) continue;
    ++begins[static_cast<size_t>(begin_of(&block)) + 1];
    if (block.last + 1 < launches)
      freed[static_cast<size_t>(block.last + 1)] += aligned(block.bytes);
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<const PackedBlock*> blocks(begins.back());  // By their first launch.
  for (const PackedBlock& block : step.blocks)
    if (is_used(block)) blocks[begins[static_cast<size_t>(begin_of(&block))]++] = &block;

  std::vector<MemoryAt> curve;
  curve.reserve(step.launches.size());
  std::priority_queue<std::pair<int64_t, int64_t>> ends;  // A block's end, its last launch.
  int64_t used = 0;
  size_t next = 0;
  for (int64_t launch = 0; launch < launches; ++launch) {
    used -= freed[static_cast<size_t>(launch)];
    for (; next < blocks.size() && begin_of(blocks[next]) == launch; ++next) {
      used += aligned(blocks[next]->bytes);
      ends.emplace(blocks[next]->offset + aligned(blocks[next]->bytes), blocks[next]->last);
    }
    while (!ends.empty() && ends.top().second < launch) ends.pop();
    const int64_t end = ends.empty() ? 0 : ends.top().first;
    curve.push_back({step.persistent_bytes + used, end - used});
  }
  return curve;
}

std::vector<size_t> fullest_launches(const std::vector<MemoryAt>& curve, size_t most) {
  const size_t step = std::max<size_t>(1, (curve.size() + most - 1) / most);
  std::vector<size_t> launches;
  for (size_t begin = 0; begin < curve.size(); begin += step) {
    const auto first = curve.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = first + static_cast<std::ptrdiff_t>(std::min(step, curve.size() - begin));
    launches.push_back(static_cast<size_t>(
        std::ranges::max_element(
            first, end, {}, [](const MemoryAt& at) { return std::pair(at.bytes(), at.used); }) -
        curve.begin()));
  }
  return launches;
}

}  // namespace tessera
