// SPDX-License-Identifier: Apache-2.0
#include "core/passes/memory/step_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

// With more blocks packing by size, which is quadratic in the worst case, takes too long.
constexpr size_t kMostBySize = 20000;

bool live_together(const PackedBlock& a, const PackedBlock& b) {
  return a.first <= b.last && b.first <= a.last;
}

std::vector<size_t> ordered(const std::vector<PackedBlock>& blocks, auto before) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return before(blocks[a], blocks[b]); });
  return order;
}

// Gaps between allocated blocks; memory from top() on is free.
class FreeList {
 public:
  int64_t take(int64_t bytes) {
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
      if (gap->second >= bytes && (best == gaps_.end() || gap->second < best->second)) best = gap;
    if (best == gaps_.end()) return extend(bytes);
    const auto [offset, size] = *best;
    gaps_.erase(best);
    if (size > bytes) gaps_.emplace(offset + bytes, size - bytes);
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    const auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && next->first == offset + bytes) {
      bytes += next->second;
      gaps_.erase(next);
    }
    const auto after = gaps_.lower_bound(offset);
    if (after != gaps_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    gaps_.emplace(offset, bytes);
  }

  int64_t top() const { return top_; }

 private:
  // Allocates at the end, including a gap there.
  int64_t extend(int64_t bytes) {
    int64_t offset = top_;
    if (!gaps_.empty() && gaps_.rbegin()->first + gaps_.rbegin()->second == top_) {
      offset = gaps_.rbegin()->first;
      gaps_.erase(std::prev(gaps_.end()));
    }
    top_ = offset + bytes;
    return offset;
  }

  std::map<int64_t, int64_t> gaps_;  // From offset to size; adjacent gaps are joined.
  int64_t top_ = 0;
};

// Places blocks in order of first use, each into the smallest gap that fits (best fit).
int64_t pack_by_time(std::vector<PackedBlock>& blocks) {
  const std::vector<size_t> order =
      ordered(blocks, [](const PackedBlock& a, const PackedBlock& b) { return a.first < b.first; });
  std::multimap<int64_t, size_t> live;  // By last use.
  FreeList memory;
  for (const size_t i : order) {
    while (!live.empty() && live.begin()->first < blocks[i].first) {
      const PackedBlock& dead = blocks[live.begin()->second];
      memory.give(dead.offset, aligned(dead.bytes));
      live.erase(live.begin());
    }
    blocks[i].offset = memory.take(aligned(blocks[i].bytes));
    live.emplace(blocks[i].last, i);
  }
  return memory.top();
}

// Places the largest blocks first, each into the smallest gap between the placed blocks that are
// used at the same time.
int64_t pack_by_size(std::vector<PackedBlock>& blocks) {
  const std::vector<size_t> order =
      ordered(blocks, [](const PackedBlock& a, const PackedBlock& b) { return a.bytes > b.bytes; });
  std::vector<size_t> placed;  // By offset.
  int64_t top = 0;
  for (const size_t i : order) {
    const int64_t bytes = aligned(blocks[i].bytes);
    int64_t end = 0, best = -1, best_gap = 0;
    for (const size_t j : placed) {
      if (!live_together(blocks[i], blocks[j])) continue;
      const int64_t gap = blocks[j].offset - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, blocks[j].offset + aligned(blocks[j].bytes));
    }
    blocks[i].offset = best >= 0 ? best : end;
    top = std::max(top, blocks[i].offset + bytes);
    const auto position =
        std::upper_bound(placed.begin(), placed.end(), i,
                         [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; });
    placed.insert(position, i);
  }
  return top;
}

constexpr int64_t kUnplaced = -1;

// Sets the offsets of the persistent inputs: those of `persistent`, then new ones after them.
// Returns the end.
int64_t place_persistent(const Graph& graph, const std::vector<Placement>& persistent,
                         std::vector<Placement>& inputs) {
  int64_t end = 0;
  for (const Placement& fixed : persistent)
    end = std::max(end, fixed.offset + aligned(fixed.type.bytes()));
  for (const GraphInput& input : graph.inputs()) {
    Placement placement{input.name, input.kind, graph.type(input.value), kUnplaced};
    if (input.kind == InputKind::kParameter || input.kind == InputKind::kState) {
      const auto fixed = std::find_if(persistent.begin(), persistent.end(),
                                      [&](const Placement& p) { return p.name == input.name; });
      if (fixed == persistent.end()) {
        placement.offset = end;
        end += aligned(placement.type.bytes());
      } else if (fixed->type != placement.type) {
        fail("{} is {} in one program of the run and {} in another", input.name,
             fixed->type.text_sized(), placement.type.text_sized());
      } else {
        placement.offset = fixed->offset;
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

  StepPlan plan() {
    place_buffers();
    place_inputs_and_outputs();
    for (const FlatLaunch& launch : program_.launches) plan_.launches.push_back(placed(launch));
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
    for (const FlatValue value : launch.inputs) result.inputs.push_back(offset(value));
    for (const FlatValue value : launch.outputs) result.outputs.push_back(offset(value));
    if (launch.scratch != kNone) result.scratch = offset({launch.scratch, 0, 0});
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
  IndexedVector<BufferId, int64_t> offsets_;  // Of buffers without parent.
  StepPlan plan_;
};

}  // namespace

int64_t pack_arena(std::vector<PackedBlock>& blocks) {
  const int64_t by_time = pack_by_time(blocks);
  if (by_time == max_live_bytes(blocks) || blocks.size() > kMostBySize) return by_time;
  std::vector<PackedBlock> other = blocks;
  const int64_t by_size = pack_by_size(other);
  if (by_size >= by_time) return by_time;
  blocks = std::move(other);
  return by_size;
}

int64_t max_live_bytes(const std::vector<PackedBlock>& blocks) {
  std::map<int64_t, int64_t> change;  // Of the live bytes, by time.
  for (const PackedBlock& block : blocks) {
    change[block.first] += aligned(block.bytes);
    change[block.last + 1] -= aligned(block.bytes);
  }
  int64_t live = 0, most = 0;
  for (const auto& [moment, bytes] : change) {
    live += bytes;
    most = std::max(most, live);
  }
  return most;
}

StepPlan plan_memory(Graph lowered, const KernelFacts& facts,
                     const std::vector<Placement>& persistent, Communication communication,
                     const LaunchSeconds& seconds) {
  FlatProgram program = flatten(std::make_shared<const Graph>(std::move(lowered)), facts);
  if (communication == Communication::kOverlapped) overlap(program, seconds);
  write_in_place(program, facts);
  return Planner(std::move(program), persistent).plan();
}

}  // namespace tessera
