// SPDX-License-Identifier: Apache-2.0
#include "core/compile/memory/step_program.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <queue>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/compile/memory/flat_program.h"

namespace tessera {
namespace {

// Most blocks that are packed by size, which is quadratic in the worst case.
constexpr size_t kMostBySize = 20000;

bool live_together(const PackedBlock& a, const PackedBlock& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The times at which blocks are used, as indices: 0 is before the first launch. A block that is
// never used begins at the last one.
class BlockTimes {
 public:
  explicit BlockTimes(const std::vector<PackedBlock>& blocks) {
    for (const PackedBlock& block : blocks) last_ = std::max(last_, block.last + 2);
  }

  size_t count() const { return static_cast<size_t>(last_) + 2; }
  size_t index(int64_t time) const { return static_cast<size_t>(std::min(time, last_) + 1); }

 private:
  int64_t last_ = 0;
};

// Sorts by counting: a step has millions of blocks, and about as many times.
std::vector<size_t> by_first_use(const std::vector<PackedBlock>& blocks) {
  const BlockTimes times(blocks);
  std::vector<size_t> begins(times.count() + 1, 0);
  for (const PackedBlock& block : blocks) ++begins[times.index(block.first) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<size_t> order(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) order[begins[times.index(blocks[i].first)]++] = i;
  return order;
}

std::vector<size_t> largest_first(const std::vector<PackedBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return blocks[i].bytes; });
  return order;
}

// Gaps between allocated blocks; memory from top() on is free. There are few at a time, so sorted
// arrays are faster than trees.
class FreeList {
 public:
  // Takes the smallest gap that fits, the first of equal ones.
  int64_t take(int64_t bytes) {
    const auto best = std::ranges::lower_bound(by_size_, Gap{bytes, 0});
    if (best == by_size_.end()) return extend(bytes);
    const auto [size, offset] = *best;
    erase(at(offset));
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;  // A value without elements.
    const auto next = at(offset);
    if (next != gaps_.end() && next->offset == offset + bytes) {
      bytes += next->bytes;
      erase(next);
    }
    const auto after = at(offset);
    if (after != gaps_.begin() && std::prev(after)->end() == offset) {
      offset = std::prev(after)->offset;
      bytes += std::prev(after)->bytes;
      erase(std::prev(after));
    }
    insert(offset, bytes);
  }

  int64_t top() const { return top_; }

 private:
  struct Gap {
    int64_t bytes = 0, offset = 0;
    int64_t end() const { return offset + bytes; }
    auto operator<=>(const Gap&) const = default;
  };
  using Gaps = std::vector<Gap>;

  // Allocates at the end, including a gap there.
  int64_t extend(int64_t bytes) {
    int64_t offset = top_;
    if (!gaps_.empty() && gaps_.back().end() == top_) {
      offset = gaps_.back().offset;
      erase(std::prev(gaps_.end()));
    }
    top_ = offset + bytes;
    return offset;
  }

  // Returns the first gap that begins at or after `offset`.
  Gaps::iterator at(int64_t offset) {
    return std::ranges::lower_bound(gaps_, offset, {}, &Gap::offset);
  }
  void insert(int64_t offset, int64_t bytes) {
    const Gap gap{bytes, offset};
    gaps_.insert(at(offset), gap);
    by_size_.insert(std::ranges::lower_bound(by_size_, gap), gap);
  }
  void erase(Gaps::iterator gap) {
    by_size_.erase(std::ranges::lower_bound(by_size_, *gap));
    gaps_.erase(gap);
  }

  Gaps gaps_;     // By offset; adjacent gaps are joined.
  Gaps by_size_;  // Ordered by size.
  int64_t top_ = 0;
};

// Places blocks in order of first use, each into the smallest gap that fits (best fit).
int64_t pack_by_time(std::vector<PackedBlock>& blocks) {
  const std::vector<size_t> order = by_first_use(blocks);
  using LastUse = std::pair<int64_t, size_t>;  // Last use of a block, and its index.
  std::priority_queue<LastUse, std::vector<LastUse>, std::greater<>> live;
  FreeList memory;
  for (const size_t i : order) {
    for (; !live.empty() && live.top().first < blocks[i].first; live.pop()) {
      const PackedBlock& dead = blocks[live.top().second];
      memory.give(dead.offset, aligned(dead.bytes));
    }
    blocks[i].offset = memory.take(aligned(blocks[i].bytes));
    live.emplace(blocks[i].last, i);
  }
  return memory.top();
}

// A range of bytes of the arena that is in use.
struct Extent {
  int64_t begin = 0, end = 0;
};

// Joins `added` with the extents that it meets or touches. They are disjoint, and in order.
void join(std::vector<Extent>& extents, Extent added) {
  const auto first = std::ranges::lower_bound(extents, added.begin, {}, &Extent::end);
  auto last = first;
  for (; last != extents.end() && last->begin <= added.end; ++last) {
    added.begin = std::min(added.begin, last->begin);
    added.end = std::max(added.end, last->end);
  }
  if (first == last) {
    extents.insert(first, added);
  } else {
    *first = added;
    extents.erase(std::next(first), last);
  }
}

// Placed blocks, by parts of time: the extents that are in use throughout a part, and the blocks
// that begin or end in it. For blocks that live through several parts, a tree has the extents that
// are in use throughout each aligned range of parts.
class PlacedBlocks {
 public:
  explicit PlacedBlocks(const std::vector<PackedBlock>& blocks)
      : blocks_(blocks), parts_(kParts), in_use_(2 * kParts) {
    int64_t end = 0;
    for (const PackedBlock& block : blocks) end = std::max(end, block.last);
    part_time_ = end / static_cast<int64_t>(kParts) + 1;
  }

  // Adds block i, whose offset is set.
  void add(size_t i) {
    const PackedBlock& block = blocks_[i];
    const Extent extent = extent_of(block);
    if (block.first > block.last || extent.begin == extent.end) return;  // In use at no time.
    const size_t first = part_of(block.first), last = part_of(block.last);
    for (size_t part = first + 1; part < last; ++part) join(parts_[part].in_use, extent);
    insert(parts_[first].blocks, i);
    if (last > first) insert(parts_[last].blocks, i);
    for (size_t low = kParts + first, high = kParts + last; low > 0; low /= 2, high /= 2)
      for (size_t node = low; node <= high; ++node) join(in_use_[node], extent);
  }

  // Returns the extents in use while `block` is, in order. They may overlap.
  std::span<const Extent> around(const PackedBlock& block) {
    found_.clear();
    const size_t first = part_of(block.first), last = part_of(block.last);
    add_between(first + 1, last);
    add_part(first, block);
    if (last > first) add_part(last, block);
    return found_;
  }

 private:
  static constexpr size_t kParts = 128;
  struct Part {
    std::vector<Extent> in_use;    // Extents in use throughout the part.
    std::vector<uint32_t> blocks;  // Blocks that begin or end in the part, by offset.
  };

  static Extent extent_of(const PackedBlock& block) {
    return {block.offset, block.offset + aligned(block.bytes)};
  }
  size_t part_of(int64_t time) const {
    return static_cast<size_t>(
        std::clamp<int64_t>(time / part_time_, 0, static_cast<int64_t>(kParts) - 1));
  }

  void insert(std::vector<uint32_t>& list, size_t i) const {
    const auto offset = [&](uint32_t each) { return blocks_[each].offset; };
    list.insert(std::ranges::upper_bound(list, blocks_[i].offset, {}, offset),
                static_cast<uint32_t>(i));
  }

  void add_between(size_t first, size_t end) {
    if (first >= end) return;
    for (first += kParts, end += kParts; first < end; first /= 2, end /= 2) {
      if (first % 2 == 1) add(in_use_[first++]);
      if (end % 2 == 1) add(in_use_[--end]);
    }
  }

  void add_part(size_t part, const PackedBlock& block) {
    add(parts_[part].in_use);
    part_.clear();
    for (const uint32_t i : parts_[part].blocks)
      if (live_together(block, blocks_[i])) part_.push_back(extent_of(blocks_[i]));
    add(part_);
  }

  void add(std::span<const Extent> extents) {
    before_.swap(found_);
    found_.clear();
    std::ranges::merge(before_, extents, std::back_inserter(found_), {}, &Extent::begin,
                       &Extent::begin);
  }

  const std::vector<PackedBlock>& blocks_;
  int64_t part_time_ = 1;
  std::vector<Part> parts_;
  // A binary tree: node n has the parts of nodes 2n and 2n + 1, node kParts + i has part i.
  std::vector<std::vector<Extent>> in_use_;
  std::vector<Extent> found_, before_, part_;
};

// Places the largest blocks first, each into the smallest gap between the placed blocks that are
// used at the same time. Ends early if the arena reaches `limit`.
int64_t pack_by_size(std::vector<PackedBlock>& blocks, int64_t limit) {
  const std::vector<size_t> order = largest_first(blocks);
  PlacedBlocks placed(blocks);
  int64_t top = 0;
  for (const size_t i : order) {
    const int64_t bytes = aligned(blocks[i].bytes);
    int64_t end = 0, best = -1, best_gap = 0;
    for (const Extent& used : placed.around(blocks[i])) {
      const int64_t gap = used.begin - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, used.end);
    }
    blocks[i].offset = best >= 0 ? best : end;
    top = std::max(top, blocks[i].offset + bytes);
    if (top >= limit) break;
    placed.add(i);
  }
  return top;
}

constexpr int64_t kUnplaced = -1;

// Sets the offsets of the persistent inputs: those of `persistent`, then new ones after them.
// Returns the end.
int64_t place_persistent(const Graph& graph, const std::vector<Placement>& persistent,
                         std::vector<Placement>& inputs) {
  int64_t end = 0;
  std::unordered_map<std::string_view, const Placement*> fixed_by_name;
  for (const Placement& fixed : persistent) {
    end = std::max(end, fixed.offset + aligned(fixed.type.bytes()));
    fixed_by_name.emplace(fixed.name, &fixed);
  }
  for (const GraphInput& input : graph.inputs()) {
    Placement placement{input.name, input.kind, graph.type(input.value), kUnplaced};
    if (persists(input.kind)) {
      const auto found = fixed_by_name.find(input.name);
      if (found == fixed_by_name.end()) {
        placement.offset = end;
        end += aligned(placement.type.bytes());
      } else if (const Placement& fixed = *found->second; fixed.type != placement.type) {
        fail("{} is {} in one program of the run and {} in another", input.name,
             fixed.type.text_sized(), placement.type.text_sized());
      } else {
        placement.offset = fixed.offset;
      }
    }
    inputs.push_back(std::move(placement));
  }
  return end;
}

// Turns a flat program into launches at offsets.
class Planner {
 public:
  Planner(FlatProgram program, const std::vector<Placement>& persistent)
      : program_(std::move(program)), offsets_(program_.buffers.size(), kUnplaced) {
    plan_.graph = program_.graph;
    plan_.helpers = program_.helpers;
    plan_.tasks = program_.tasks;
    plan_.persistent_bytes = place_persistent(*plan_.graph, persistent, plan_.inputs);
  }

  StepProgram plan() {
    place_buffers();
    place_inputs_and_outputs();
    plan_.launches = IndexedVector<LaunchId, Launch>(program_.launches.size());
    for (const LaunchId id : program_.launches.ids())
      plan_.launches[id] = placed(program_.launches[id]);
    measure();
    return std::move(plan_);
  }

 private:
  void place_buffers() {
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      if (plan_.inputs[i].offset != kUnplaced)
        offset_of(program_.inputs[i]) = plan_.inputs[i].offset;
    std::vector<PackedBlock> blocks;
    std::vector<BufferId> owners;
    for (const BufferId id : program_.buffers.ids()) {
      const FlatBuffer& buffer = program_.buffers[id];
      if (buffer.parent != kNone || buffer.persistent) continue;
      owners.push_back(id);
      blocks.push_back({buffer.bytes, buffer.first, buffer.last});
    }
    const int64_t packed = pack_arena(blocks);
    for (size_t i = 0; i < owners.size(); ++i)
      offsets_[owners[i]] = plan_.persistent_bytes + blocks[i].offset;
    plan_.arena_bytes = plan_.persistent_bytes + packed;
    plan_.blocks = std::move(blocks);
  }

  int64_t& offset_of(FlatValue root) { return offsets_[root.buffer]; }

  int64_t offset(FlatValue value) {
    const FlatValue root = program_.root(value);
    CHECK(offset_of(root) != kUnplaced);
    return offset_of(root) + root.offset;
  }

  void place_inputs_and_outputs() {
    const Graph& graph = *plan_.graph;
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      plan_.inputs[i].offset = offset(program_.inputs[i]);
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const GraphOutput& output = graph.outputs()[i];
      if (output.is_update) continue;
      plan_.outputs.push_back(
          {output.name, InputKind::kBatch, graph.type(output.value), offset(program_.outputs[i])});
    }
  }

  Launch placed(const FlatLaunch& launch) {
    Launch result{.graph = launch.graph, .node = launch.node, .inputs = {}, .outputs = {}};
    result.inputs.reserve(launch.inputs.size());
    result.outputs.reserve(launch.outputs.size());
    for (const FlatValue value : launch.inputs) result.inputs.push_back(offset(value));
    for (const FlatValue value : launch.outputs) result.outputs.push_back(offset(value));
    if (launch.scratch != kNone) result.scratch = offset({.buffer = launch.scratch});
    result.kind = launch.kind;
    result.waits_for = launch.waits_for;
    result.task = launch.task;
    return result;
  }

  void measure() {
    MemoryUse& use = plan_.use;
    for (const Placement& input : plan_.inputs) {
      int64_t& bytes = input.kind == InputKind::kParameter ? use.parameters
                       : input.kind == InputKind::kState   ? use.state
                                                           : use.batch;
      bytes += aligned(input.type.bytes());
    }
    measure_peak();
    use.peak = plan_.arena_bytes;
    use.temporaries =
        use.peak - plan_.persistent_bytes - use.batch - use.activations - use.gradients;
  }

  void measure_peak() {
    // Changes of the bytes in use before each launch. Inputs are in use all the time.
    struct Change {
      int64_t all = 0, activations = 0, gradients = 0;
    };
    std::vector<Change> changes(program_.launches.size() + 2);
    for (const FlatBuffer& buffer : program_.buffers) {
      if (buffer.parent != kNone || buffer.is_input || buffer.first > buffer.last) continue;
      const int64_t bytes = aligned(buffer.bytes);
      const bool gradient =
          buffer.last_read_in == Phase::kUpdate && buffer.written_in != Phase::kUpdate;
      const bool activation =
          buffer.last_read_in == Phase::kBackward && buffer.written_in == Phase::kForward;
      const auto add = [&](int64_t launch, int64_t sign) {
        Change& change = changes[static_cast<size_t>(launch)];
        change.all += sign * bytes;
        if (activation) change.activations += sign * bytes;
        if (gradient) change.gradients += sign * bytes;
      };
      add(buffer.first, 1);
      add(buffer.last + 1, -1);
    }
    Change now;
    int64_t most = -1;
    for (const Change& change : changes) {
      now.all += change.all;
      now.activations += change.activations;
      now.gradients += change.gradients;
      if (now.all <= most) continue;
      most = now.all;
      plan_.use.activations = now.activations;
      plan_.use.gradients = now.gradients;
    }
  }

  FlatProgram program_;
  IndexedVector<BufferId, int64_t> offsets_;  // Offsets of buffers without parent.
  StepProgram plan_;
};

}  // namespace

int64_t pack_arena(std::vector<PackedBlock>& blocks) {
  const int64_t by_time = pack_by_time(blocks);
  if (by_time == max_live_bytes(blocks) || blocks.size() > kMostBySize) return by_time;
  std::vector<PackedBlock> other = blocks;
  const int64_t by_size = pack_by_size(other, by_time);
  if (by_size >= by_time) return by_time;
  blocks = std::move(other);
  return by_size;
}

int64_t max_live_bytes(const std::vector<PackedBlock>& blocks) {
  const BlockTimes times(blocks);
  std::vector<int64_t> changes(times.count(), 0);  // Changes of the live bytes, by time.
  for (const PackedBlock& block : blocks) {
    changes[times.index(block.first)] += aligned(block.bytes);
    changes[times.index(block.last + 1)] -= aligned(block.bytes);
  }
  int64_t live = 0, most = 0;
  for (const int64_t change : changes) most = std::max(most, live += change);
  return most;
}

StepProgram plan_memory(Graph lowered, const KernelFacts& facts,
                        const std::vector<Placement>& persistent, Communication communication,
                        const LaunchSeconds& seconds) {
  FlatProgram program = flatten(std::make_shared<const Graph>(std::move(lowered)), facts);
  if (communication == Communication::kOverlapped) overlap(program, seconds);
  write_in_place(program, facts);
  return Planner(std::move(program), persistent).plan();
}

}  // namespace tessera
