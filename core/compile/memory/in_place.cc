// SPDX-License-Identifier: Apache-2.0
// Updates in place (flat_program.h). In: a flat program, and which results may overwrite which
// operands. Out: live ranges, and buffers merged: next values of states with the states, slices of
// stacks and results with dead operands; copies at the end for other states. A greedy choice in
// program order: a result takes the first dead operand of its size. Cost: some passes over all
// operands; for values written by parts also all pairs of accesses to the two buffers.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/compile/memory/flat_program.h"

namespace tessera {
namespace {

class InPlaceUpdates {
 public:
  InPlaceUpdates(FlatProgram& program, const KernelFacts& facts)
      : program_(program), facts_(facts), known_(program.nodes.size()) {}

  void run() {
    find_live_ranges();
    find_updates();
    keep_old_values_to_the_end();
    for (Update& update : updates_) update.in_place = try_update_in_place(update);
    const int64_t before = end();
    copy_other_updates();
    // Updates in place change only the ranges of states, which are not packed.
    if (end() > before) find_live_ranges();
    overwrite_stacks();
    for (int64_t time = 0; time < end(); ++time) overwrite_dead_inputs(time);
  }

 private:
  struct Update {
    FlatValue state, next;
    Type type;
    bool in_place = false;
  };

  int64_t end() const { return std::ssize(program_.launches); }
  const FlatLaunch& launch(int64_t time) const {
    return program_.launches[LaunchId(static_cast<size_t>(time))];
  }
  FlatBuffer& buffer(FlatValue root) { return program_.buffers[root.buffer]; }
  FlatBuffer& root_buffer(FlatValue value) {
    BufferId id = value.buffer;
    while (program_.buffers[id].parent != kNone) id = program_.buffers[id].parent;
    return program_.buffers[id];
  }

  static bool is_whole(FlatValue value, const FlatBuffer& buffer) {
    return value.offset == 0 && value.bytes == buffer.bytes;
  }

  // Time is the number of a launch; -1 is before the first and end() after the last.
  void find_live_ranges() {
    for (FlatBuffer& b : program_.buffers) {
      b.first = b.is_input ? -1 : std::numeric_limits<int64_t>::max();
      b.last = b.is_input ? (b.persistent ? -1 : end()) : -1;
      b.written_in = Phase::kUpdate;
      b.last_read_in = Phase::kForward;
    }
    for (int64_t time = 0; time < end(); ++time) {
      const Phase phase = program_.nodes[launch(time).flat_node]->phase;
      const auto live = [&](FlatValue value) -> FlatBuffer& {
        FlatBuffer& b = root_buffer(value);
        if (b.first > time) {
          b.first = time;
          b.written_in = phase;
        }
        b.last = std::max(b.last, time);
        return b;
      };
      for (const FlatValue value : launch(time).inputs) live(value).last_read_in = phase;
      for (const FlatValue value : launch(time).outputs) live(value);
      if (launch(time).scratch != kNone) live({.buffer = launch(time).scratch});
    }
    const Graph& graph = *program_.graph;
    for (size_t i = 0; i < graph.outputs().size(); ++i)
      if (!graph.outputs()[i].is_update) root_buffer(program_.outputs[i]).last = end();
  }

  void find_updates() {
    const Graph& graph = *program_.graph;
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const GraphOutput& output = graph.outputs()[i];
      if (!output.is_update) continue;
      const GraphInput* const input = graph.find_input(output.name);
      CHECK(input != nullptr, "{} is updated but is not an input", output.name);
      const Type& type = graph.type(input->value);
      CHECK(graph.type(output.value) == type, "{} is {}, its update is {}", output.name,
            type.text_sized(), graph.type(output.value).text_sized());
      const FlatValue state = program_.inputs[static_cast<size_t>(input - graph.inputs().data())];
      updates_.push_back({state, program_.outputs[i], type});
    }
  }

  // A state that is the next value of another state is read at the end.
  void keep_old_values_to_the_end() {
    for (const Update& update : updates_) {
      FlatBuffer& from = root_buffer(update.next);
      if (from.is_input && program_.root(update.next).buffer != update.state.buffer)
        from.last = end();
    }
  }

  bool unchanged(const Update& update) const {
    const FlatValue root = program_.root(update.next);
    return root.buffer == update.state.buffer && root.offset == 0;
  }

  // Updates in place if the last read of the old value precedes the write of the next value, or is
  // by the same launch and the kernel may overwrite its input.
  bool try_update_in_place(const Update& update) {
    FlatBuffer& next = buffer(update.next);
    if (unchanged(update)) return true;
    if (next.parent != kNone || next.is_input || !is_whole(update.next, next)) return false;
    const FlatBuffer& state = buffer(update.state);
    const bool in_one_go =
        state.last < next.first ||
        (state.last == next.first && may_overwrite(next.first, update.next, update.state.buffer));
    if (!in_one_go && !may_overwrite_by_parts(update)) return false;
    next.parent = update.state.buffer;
    next.parent_offset = 0;
    buffer(update.state).last = end();
    if (next.first != sorted_.time) sorted_.time = -1;  // Other operands may have moved.
    return true;
  }

  // Returns whether a loop may update a state slice by slice: no part of the old value is read
  // after it is written.
  bool may_overwrite_by_parts(const Update& update) {
    if (buffer(update.state).last == end()) return false;  // The old value is an output.
    if (accesses_.empty()) {
      // An update in place changes no access of another update.
      std::vector<BufferId> buffers;
      for (const Update& each : updates_)
        buffers.insert(buffers.end(), {each.state.buffer, each.next.buffer});
      find_accesses(buffers);
    }
    return may_overwrite_by_parts(update.state.buffer, update.next.buffer);
  }

  bool may_overwrite_by_parts(BufferId old, BufferId next) {
    for (const Access& write : accesses_[tracked_[next]]) {
      if (!write.writes) continue;
      const FlatLaunch& at = launch(write.time);
      for (const Access& access : accesses_[tracked_[old]]) {
        if (!parts_overlap(access.part, write.part) || access.time < write.time) continue;
        if (access.writes || access.time > write.time || !is_same_part(access.part, write.part) ||
            !kernel_allows(at, write.number, access.number))
          return false;
      }
    }
    return true;
  }

  static bool is_same_part(FlatValue a, FlatValue b) {
    return a.offset == b.offset && a.bytes == b.bytes;
  }
  static bool parts_overlap(FlatValue a, FlatValue b) {
    return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  }

  // Finds the accesses of these buffers, in one pass over all launches.
  void find_accesses(const std::vector<BufferId>& buffers) {
    accesses_.clear();
    accesses_.emplace_back();  // Index 0 means no buffer.
    tracked_ = IndexedVector<BufferId, size_t>(program_.buffers.size());
    for (const BufferId id : buffers) {
      if (tracked_[id] > 0) continue;
      tracked_[id] = accesses_.size();
      accesses_.emplace_back();
    }
    for (int64_t time = 0; time < end(); ++time) {
      const auto add = [&](std::span<const FlatValue> values, bool writes) {
        for (size_t i = 0; i < values.size(); ++i) {
          const FlatValue part = program_.root(values[i]);
          if (tracked_[part.buffer] > 0)
            accesses_[tracked_[part.buffer]].push_back(
                {time, static_cast<int64_t>(i), part, writes});
        }
      };
      add(launch(time).inputs, false);
      add(launch(time).outputs, true);
    }
  }

  // Stacks of a loop that reads slices of `old` and makes those of `next`, as sums of gradients do.
  struct StackPair {
    BufferId old, next;
  };

  std::vector<StackPair> stack_pairs() {
    std::vector<StackPair> found;
    IndexedVector<BufferId, bool> seen(program_.buffers.size());
    for (int64_t time = 0; time < end(); ++time)
      for (const FlatValue output : launch(time).outputs) {
        if (buffer(output).parent == kNone) continue;
        const FlatValue slice = program_.root(output);
        const FlatBuffer& next = buffer(slice);
        if (next.is_input || is_whole(slice, next) || seen[slice.buffer]) continue;
        seen[slice.buffer] = true;
        for (const FlatValue input : launch(time).inputs) {
          const FlatValue part = program_.root(input);
          const FlatBuffer& old = buffer(part);
          if (part.buffer != slice.buffer && !old.is_input && old.bytes == next.bytes &&
              is_same_part(part, slice))
            found.push_back({part.buffer, slice.buffer});
        }
      }
    return found;
  }

  // Places the next stack in the memory of the old one, slice by slice.
  void overwrite_stacks() {
    const std::vector<StackPair> pairs = stack_pairs();
    if (pairs.empty()) return;
    std::vector<BufferId> buffers;
    for (const StackPair& pair : pairs) buffers.insert(buffers.end(), {pair.old, pair.next});
    find_accesses(buffers);
    IndexedVector<BufferId, bool> is_taken(program_.buffers.size());
    for (const StackPair& pair : pairs) {
      FlatBuffer& next = program_.buffers[pair.next];
      const BufferId memory = program_.root({.buffer = pair.old}).buffer;
      const bool is_output = program_.buffers[pair.old].last == end();
      // A launch may write slices of two stacks.
      if (next.parent != kNone || is_taken[pair.old] || is_output ||
          !may_overwrite_by_parts(pair.old, pair.next))
        continue;
      is_taken[pair.old] = true;
      next.parent = memory;
      next.parent_offset = 0;
      FlatBuffer& whole = program_.buffers[memory];
      whole.last = std::max(whole.last, next.last);
      whole.last_read_in = next.last_read_in;
    }
  }

  // Returns whether the launch may write `output` over all of its inputs in the buffer `over`.
  bool may_overwrite(int64_t time, FlatValue output, BufferId over) {
    const FlatLaunch& at = launch(time);
    const std::span<const Operand> results = find(operands_at(time).results, output.buffer);
    if (results.empty()) return false;
    for (const auto& [buffer, i] : find(operands_at(time).operands, over)) {
      const FlatValue root = program_.root(at.inputs[i]);
      if (root.offset != 0 || root.bytes != output.bytes) return false;
      if (!kernel_allows(at, static_cast<int64_t>(results.back().second), static_cast<int64_t>(i)))
        return false;
    }
    return true;
  }

  // Asks the kernel; answers are kept for all launches of a node.
  bool kernel_allows(const FlatLaunch& at, int64_t result, int64_t operand) {
    if (!facts_.may_overwrite || at.graph == program_.helpers.get()) return false;
    constexpr int64_t kKept = 8;  // Results and operands.
    const Node& node = *program_.nodes[at.flat_node];
    if (result >= kKept || operand >= kKept)
      return facts_.may_overwrite(*at.graph, node, result, operand);
    Answers& answers = known_[at.flat_node];
    const uint64_t bit = uint64_t{1} << (result * kKept + operand);
    if ((answers.given & bit) == 0) {
      answers.given |= bit;
      if (facts_.may_overwrite(*at.graph, node, result, operand)) answers.yes |= bit;
    }
    return (answers.yes & bit) != 0;
  }

  // The buffer of an operand (its root) or of a result, and its position.
  using Operand = std::pair<BufferId, size_t>;
  struct SortedOperands {
    int64_t time = -1;  // Number of the launch.
    std::vector<Operand> operands, results;
  };

  // Returns sorted operands. The launch of all updates has thousands and needs each, so it is
  // sorted once.
  const SortedOperands& operands_at(int64_t time) {
    if (sorted_.time == time) return sorted_;
    const FlatLaunch& at = launch(time);
    sorted_.time = time;
    sorted_.operands.clear();
    sorted_.results.clear();
    for (size_t i = 0; i < at.inputs.size(); ++i)
      sorted_.operands.emplace_back(program_.root(at.inputs[i]).buffer, i);
    for (size_t i = 0; i < at.outputs.size(); ++i)
      sorted_.results.emplace_back(at.outputs[i].buffer, i);
    std::ranges::sort(sorted_.operands);
    std::ranges::sort(sorted_.results);
    return sorted_;
  }
  static std::span<const Operand> find(const std::vector<Operand>& sorted, BufferId buffer) {
    return std::ranges::equal_range(sorted, buffer, {}, &Operand::first);
  }

  // Copies the next values of other states. Values that the copies would overwrite are spilled
  // first.
  void copy_other_updates() {
    const Graph& graph = *program_.graph;
    for (size_t i = 0; i < graph.outputs().size(); ++i)
      if (!graph.outputs()[i].is_update && is_replaced(program_.outputs[i]))
        spill(program_.outputs[i], graph.type(graph.outputs()[i].value));
    for (Update& update : updates_)
      if (!update.in_place && root_buffer(update.next).persistent) spill(update.next, update.type);
    for (const Update& update : updates_)
      if (!update.in_place) add_copy(program_, update.type, update.next, update.state);
  }

  // Returns whether `value` is the old value of a state.
  bool is_replaced(FlatValue value) const {
    const BufferId root = program_.root(value).buffer;
    return std::ranges::any_of(updates_, [&](const Update& update) {
      return update.state.buffer == root && !update.in_place;
    });
  }

  void spill(FlatValue& value, const Type& type) {
    const FlatValue spilled{.buffer = program_.buffers.push_back({.bytes = value.bytes}),
                            .bytes = value.bytes};
    add_copy(program_, type, value, spilled);
    value = spilled;
  }

  void overwrite_dead_inputs(int64_t time) {
    dead_.clear();
    for (const FlatValue input : launch(time).inputs) {
      const FlatValue root = program_.root(input);
      const FlatBuffer& operand = buffer(root);
      if (operand.is_input || operand.last != time || operand.first == time) continue;
      if (is_whole(root, operand)) dead_.push_back(root.buffer);
    }
    if (dead_.empty()) return;
    for (const FlatValue output : launch(time).outputs) {
      FlatBuffer& result = buffer(output);
      if (result.parent != kNone || result.is_input || !is_whole(output, result)) continue;
      if (result.first != time) continue;
      const auto taken = std::ranges::find_if(dead_, [&](BufferId dead) {
        return program_.buffers[dead].bytes == result.bytes && may_overwrite(time, output, dead);
      });
      if (taken == dead_.end()) continue;
      FlatBuffer& operand = program_.buffers[*taken];
      result.parent = *taken;
      result.parent_offset = 0;
      operand.last = result.last;
      operand.last_read_in = result.last_read_in;
      std::erase(dead_, BufferId(*taken));
    }
  }

  // A read or a write of a part of a buffer by operand or result `number` of a launch.
  struct Access {
    int64_t time, number;
    FlatValue part;
    bool writes;
  };

  struct Answers {
    uint64_t given = 0, yes = 0;
  };

  FlatProgram& program_;
  const KernelFacts& facts_;
  IndexedVector<FlatNodeId, Answers> known_;
  std::vector<Update> updates_;
  // From find_accesses(): the accesses of buffer b are accesses_[tracked_[b]].
  IndexedVector<BufferId, size_t> tracked_;
  std::vector<std::vector<Access>> accesses_;
  SortedOperands sorted_;
  std::vector<BufferId> dead_;  // Operands of a launch that nothing reads later.
};

}  // namespace

void write_in_place(FlatProgram& program, const KernelFacts& facts) {
  InPlaceUpdates(program, facts).run();
}

}  // namespace tessera
