// SPDX-License-Identifier: Apache-2.0
#include "core/passes/memory/liveness.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

class InPlace {
 public:
  InPlace(FlatProgram& program, const KernelFacts& facts) : program_(program), facts_(facts) {}

  void run() {
    find_lifetimes();
    find_updates();
    keep_old_values_to_the_end();
    for (Update& update : updates_) update.in_place = try_update_in_place(update);
    copy_other_updates();
    find_lifetimes();
    for (int64_t moment = 0; moment < end(); ++moment) overwrite_dying(moment);
  }

 private:
  struct Update {
    FlatValue state, next;
    Type type;
    bool in_place = false;
  };

  int64_t end() const { return static_cast<int64_t>(program_.launches.size()); }
  const FlatLaunch& launch(int64_t moment) const {
    return program_.launches[static_cast<size_t>(moment)];
  }
  FlatBuffer& buffer(FlatValue root) { return program_.buffers[static_cast<size_t>(root.buffer)]; }
  FlatBuffer& root_buffer(FlatValue value) { return buffer(program_.root(value)); }

  static bool is_whole(FlatValue value, const FlatBuffer& buffer) {
    return value.offset == 0 && value.bytes == buffer.bytes;
  }

  // Moment -1 is before the first launch, moment end() after the last.
  void find_lifetimes() {
    for (FlatBuffer& b : program_.buffers) {
      b.first = b.is_input ? -1 : std::numeric_limits<int64_t>::max();
      b.last = b.is_input ? (b.persistent ? -1 : end()) : -1;
      b.written_in = Phase::kUpdate;
      b.last_read_in = Phase::kForward;
    }
    for (int64_t moment = 0; moment < end(); ++moment) {
      const Phase phase = launch(moment).graph->node(launch(moment).node).phase;
      const auto live = [&](FlatValue value) -> FlatBuffer& {
        FlatBuffer& b = root_buffer(value);
        if (b.first > moment) {
          b.first = moment;
          b.written_in = phase;
        }
        b.last = std::max(b.last, moment);
        return b;
      };
      for (const FlatValue value : launch(moment).inputs) live(value).last_read_in = phase;
      for (const FlatValue value : launch(moment).outputs) live(value);
      if (launch(moment).scratch != kNone) live({launch(moment).scratch, 0, 0});
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
      const auto input = std::find_if(graph.inputs().begin(), graph.inputs().end(),
                                      [&](const GraphInput& in) { return in.name == output.name; });
      CHECK(input != graph.inputs().end(), "{} is updated but is no input", output.name);
      const Type& type = graph.type(input->value);
      CHECK(graph.type(output.value) == type, "{} is {} and becomes {}", output.name,
            type.text_sized(), graph.type(output.value).text_sized());
      const FlatValue state = program_.inputs[static_cast<size_t>(input - graph.inputs().begin())];
      updates_.push_back({state, program_.outputs[i], type});
    }
  }

  // A state that becomes another's next value is read at the end, so it is not overwritten before.
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

  // The old value is dead when the next is written, or dies in the very launch that writes it.
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
    return true;
  }

  // A state that a loop updates slice by slice: each part is written when all that read this part
  // of the old value have done so, the last of them perhaps the very launch that writes it.
  bool may_overwrite_by_parts(const Update& update) {
    if (buffer(update.state).last == end()) return false;  // Something takes the old value whole.
    struct Read {
      int64_t moment, input;
      FlatValue part;
    };
    std::vector<Read> reads;
    for (int64_t moment = 0; moment < end(); ++moment) {
      const std::vector<FlatValue>& inputs = launch(moment).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const FlatValue part = program_.root(inputs[i]);
        if (part.buffer == update.state.buffer)
          reads.push_back({moment, static_cast<int64_t>(i), part});
      }
    }
    for (int64_t moment = 0; moment < end(); ++moment) {
      const FlatLaunch& at = launch(moment);
      for (size_t o = 0; o < at.outputs.size(); ++o) {
        const FlatValue part = program_.root(at.outputs[o]);
        if (part.buffer != update.next.buffer) continue;
        for (const Read& read : reads) {
          const bool apart = read.part.offset + read.part.bytes <= part.offset ||
                             part.offset + part.bytes <= read.part.offset;
          if (apart || read.moment < moment) continue;
          if (read.moment > moment || read.part.offset != part.offset ||
              read.part.bytes != part.bytes || at.graph == program_.helpers.get() ||
              !facts_.may_overwrite ||
              !facts_.may_overwrite(*at.graph, at.graph->node(at.node), static_cast<int64_t>(o),
                                    read.input))
            return false;
        }
      }
    }
    return true;
  }

  // Whether the launch may write `output` over every operand that lies in `over`.
  bool may_overwrite(int64_t moment, FlatValue output, BufferId over) {
    if (!facts_.may_overwrite) return false;
    const FlatLaunch& at = launch(moment);
    if (at.graph == program_.helpers.get()) return false;
    const Node& node = at.graph->node(at.node);
    int64_t result = kNone;
    for (size_t o = 0; o < at.outputs.size(); ++o)
      if (at.outputs[o].buffer == output.buffer) result = static_cast<int64_t>(o);
    if (result == kNone) return false;
    for (size_t i = 0; i < at.inputs.size(); ++i) {
      const FlatValue root = program_.root(at.inputs[i]);
      if (root.buffer != over) continue;
      if (root.offset != 0 || root.bytes != output.bytes) return false;
      if (!facts_.may_overwrite(*at.graph, node, result, static_cast<int64_t>(i))) return false;
    }
    return true;
  }

  // First out of the way what other copies would overwrite, then to where it belongs.
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

  // Whether `value` is the old value of a state.
  bool is_replaced(FlatValue value) const {
    const BufferId root = program_.root(value).buffer;
    return std::any_of(updates_.begin(), updates_.end(), [&](const Update& update) {
      return update.state.buffer == root && !update.in_place;
    });
  }

  void spill(FlatValue& value, const Type& type) {
    program_.buffers.push_back({.bytes = value.bytes});
    const FlatValue aside{static_cast<BufferId>(program_.buffers.size()) - 1, 0, value.bytes};
    add_copy(program_, type, value, aside);
    value = aside;
  }

  void overwrite_dying(int64_t moment) {
    std::vector<BufferId> taken;
    for (const FlatValue output : launch(moment).outputs) {
      FlatBuffer& result = buffer(output);
      if (result.parent != kNone || result.is_input || !is_whole(output, result)) continue;
      if (result.first != moment) continue;
      for (const FlatValue input : launch(moment).inputs) {
        const FlatValue root = program_.root(input);
        FlatBuffer& operand = buffer(root);
        if (operand.is_input || operand.last != moment || operand.first == moment) continue;
        if (std::find(taken.begin(), taken.end(), root.buffer) != taken.end()) continue;
        if (!is_whole(root, operand) || operand.bytes != result.bytes) continue;
        if (!may_overwrite(moment, output, root.buffer)) continue;
        result.parent = root.buffer;
        result.parent_offset = 0;
        taken.push_back(root.buffer);
        operand.last = result.last;
        operand.last_read_in = result.last_read_in;
        break;
      }
    }
  }

  FlatProgram& program_;
  const KernelFacts& facts_;
  std::vector<Update> updates_;
};

}  // namespace

void write_in_place(FlatProgram& program, const KernelFacts& facts) {
  InPlace(program, facts).run();
}

}  // namespace tessera
