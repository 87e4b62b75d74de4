// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/live_bytes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/passes/memory/step_plan.h"

namespace tessera {
namespace {

// The value that a view shows.
ValueId viewed(const Graph& graph, ValueId value) {
  for (NodeId producer = graph.value(value).producer; producer != kNone;
       producer = graph.value(value).producer) {
    const Node& node = graph.node(producer);
    if (runs_bodies(node) || !view_offset(graph, node)) break;
    value = node.inputs[0];
  }
  return value;
}

bool does_count(const Graph& graph, const Node& node, const CountsNode& counts) {
  return !counts || counts(graph, node);
}

// The bytes of a loop's stacked results that no other value shares.
int64_t own_bytes_of_result(const Loop& loop, size_t k, std::set<ValueId>& counted,
                            const CountsNode& counts) {
  const Graph& body = loop.body();
  const ValueId slice = viewed(body, loop.slice_out(k));
  if (!counted.insert(slice).second) return 0;
  const int64_t bytes = body.type(slice).bytes();
  if (const NodeId producer = body.value(slice).producer; producer != kNone)
    return does_count(body, body.node(producer), counts) ? loop.count() * bytes : 0;
  for (size_t i = 0; i < loop.carries(); ++i) {  // The first one may be a value outside.
    if (loop.carry_in(i) != slice) continue;
    const NodeId producer = body.value(viewed(body, loop.carry_out(i))).producer;
    const bool does = producer != kNone && does_count(body, body.node(producer), counts);
    return does ? (loop.count() - 1) * bytes : 0;
  }
  return 0;
}

// For each output of a node the bytes that it adds to the memory in use.
std::vector<int64_t> own_bytes(const Graph& graph, const Node& node, const CountsNode& counts) {
  std::vector<int64_t> bytes(node.outputs.size(), 0);
  if (is_repeat(node)) {
    const Loop loop(node);
    std::set<ValueId> counted;
    for (size_t k = 0; k < loop.results(); ++k)
      bytes[loop.carries() + k] = own_bytes_of_result(loop, k, counted, counts);
    return bytes;
  }
  if (runs_bodies(node) || view_offset(graph, node) || !does_count(graph, node, counts))
    return bytes;
  for (size_t i = 0; i < node.outputs.size(); ++i) bytes[i] = graph.type(node.outputs[i]).bytes();
  return bytes;
}

// The bytes that a value of a graph has for itself, once.
int64_t own_bytes_of(const Graph& graph, ValueId value, std::set<ValueId>& counted,
                     const CountsNode& counts) {
  const ValueId shown = viewed(graph, value);
  const NodeId producer = graph.value(shown).producer;
  if (producer == kNone || !counted.insert(shown).second) return 0;
  const Node& node = graph.node(producer);
  const auto output = std::ranges::find(node.outputs, shown) - node.outputs.begin();
  return own_bytes(graph, node, counts)[static_cast<size_t>(output)];
}

// The part of a value's bytes that stay in memory until `reader` has run. A collective may run as
// soon as its operand is there, after which only its result stays.
double kept_for(const Graph& graph, const Node& reader, ValueId value);

// Until the last reader of a value has run.
double kept_for_readers(const Graph& graph, ValueId value) {
  double kept = 0.0;
  for (const Node& node : graph.nodes()) {
    if (kept == 1.0) break;
    if (std::ranges::find(node.inputs, value) != node.inputs.end())
      kept = std::max(kept, kept_for(graph, node, value));
  }
  return kept;
}

double kept_for(const Graph& graph, const Node& reader, ValueId value) {
  if (is_repeat(reader)) {
    const Loop loop(reader);
    double kept = 0.0;
    for (size_t i = 0; i < loop.operands(); ++i)
      if (loop.operand(i) == value)
        kept = std::max(kept, kept_for_readers(loop.body(), loop.operand_in(i)));
    return kept;
  }
  if (is_pipeline(reader)) return 0.0;  // Not counted.
  const bool moves = is_collective(reader) && !is_transfer(reader);
  if (!moves && !view_offset(graph, reader)) return 1.0;
  const double share = static_cast<double>(graph.type(reader.outputs[0]).bytes()) /
                       static_cast<double>(graph.type(value).bytes());
  return std::min(1.0, share) * kept_for_readers(graph, reader.outputs[0]);
}

// The values that tasks of a stage make for later tasks.
class PipelineValues {
 public:
  PipelineValues(const Pipeline& pipeline, const CountsNode& counts)
      : pipeline_(pipeline), calls_(pipeline.calls()) {
    for (size_t b = 0; b < pipeline.bodies(); ++b) {
      std::set<ValueId> counted;
      std::vector<int64_t> bytes;
      for (const GraphOutput& output : pipeline.body(b).outputs())
        bytes.push_back(own_bytes_of(pipeline.body(b), output.value, counted, counts));
      bytes_.push_back(std::move(bytes));
      std::vector<double> kept;
      for (size_t i = 0; i < pipeline.reads(b).size(); ++i)
        kept.push_back(kept_for_readers(pipeline.body(b), pipeline.body(b).inputs()[1 + i].value));
      kept_.push_back(std::move(kept));
      inside_.push_back(live_bytes(pipeline.body(b), counts));
    }
  }

  int64_t most() const {
    const LastReads last_reads = find_last_reads();
    std::vector<int64_t> ended(calls_.size(), 0);
    int64_t live = 0, most = 0;
    for (size_t c = 0; c < calls_.size(); ++c) {
      const auto body = static_cast<size_t>(calls_[c].body);
      most = std::max(most, live);  // Before the call, all that it and later ones read.
      live -= ended[c];
      most = std::max(most, live + inside_[body]);
      const std::vector<int64_t>& writes = pipeline_.writes(body);
      for (size_t i = 0; i < writes.size(); ++i) {
        const auto last = last_reads.find({slot_of_write(writes[i]), calls_[c].microbatch});
        if (last == last_reads.end() || last->second.call <= c) continue;
        const auto stays =
            static_cast<int64_t>(last->second.kept * static_cast<double>(bytes_[body][i]));
        live += stays;
        ended[last->second.call] += stays;
      }
    }
    return most;
  }

 private:
  static constexpr int64_t kNoSlot = -1;

  int64_t slot_of_write(int64_t number) const {
    const auto outputs = static_cast<int64_t>(pipeline_.outputs());
    return number < outputs ? kNoSlot : number - outputs;
  }

  struct LastRead {
    size_t call = 0;
    double kept = 0.0;  // As of kept_for().
  };
  using LastReads = std::map<std::pair<int64_t, int64_t>, LastRead>;  // By slot and microbatch.

  LastReads find_last_reads() const {
    LastReads last;
    const auto operands = static_cast<int64_t>(pipeline_.operands());
    for (size_t c = 0; c < calls_.size(); ++c) {
      const auto body = static_cast<size_t>(calls_[c].body);
      const std::vector<int64_t>& reads = pipeline_.reads(body);
      for (size_t i = 0; i < reads.size(); ++i) {
        if (reads[i] < operands || kept_[body][i] == 0.0) continue;
        last[{reads[i] - operands, calls_[c].microbatch}] = {c, kept_[body][i]};
      }
    }
    return last;
  }

  const Pipeline& pipeline_;
  std::vector<PipelineCall> calls_;
  std::vector<std::vector<int64_t>> bytes_;  // Of each body's outputs.
  std::vector<std::vector<double>> kept_;    // Of each body's operands, as of kept_for().
  std::vector<int64_t> inside_;              // What each body needs for itself.
};

int64_t bytes_inside(const Node& node, const CountsNode& counts) {
  if (is_repeat(node)) return live_bytes(Loop(node).body(), counts);
  if (is_pipeline(node)) return PipelineValues(Pipeline(node), counts).most();
  return 0;
}

}  // namespace

int64_t live_bytes(const Graph& graph, const CountsNode& counts) {
  constexpr int64_t kNever = -1;
  IndexedVector<ValueId, int64_t> last_read(graph.values().size(), kNever);
  IndexedVector<ValueId, double> kept(graph.values().size());  // For the last reader.
  int64_t place = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId value : node.inputs) {
      if (graph.value(value).producer == kNone) continue;
      const double part = kept_for(graph, node, value);
      if (part > 0.0) last_read[value] = place, kept[value] = part;
    }
    ++place;
  }
  // A new value of a parameter or of state may be in the place of the old one.
  for (const GraphOutput& output : graph.outputs())
    if (output.is_update) last_read[viewed(graph, output.value)] = kNever;
  const auto places = static_cast<size_t>(place);
  std::vector<int64_t> made(places, 0), ended(places, 0), inside(places, 0);
  place = 0;
  for (const Node& node : graph.nodes()) {
    const std::vector<int64_t> bytes = own_bytes(graph, node, counts);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const ValueId value = node.outputs[i];
      const int64_t end = last_read[value];
      if (end <= place) continue;
      const auto stays = static_cast<int64_t>(kept[value] * static_cast<double>(bytes[i]));
      made[static_cast<size_t>(place)] += stays;  // From the gap after this node,
      ended[static_cast<size_t>(end)] += stays;   // to the gap before its last reader.
    }
    inside[static_cast<size_t>(place)] = bytes_inside(node, counts);
    ++place;
  }
  int64_t live = 0, most = 0;
  for (size_t i = 0; i < places; ++i) {
    // While node i runs: values that were made before and are read after it.
    live -= ended[i];
    most = std::max(most, live + inside[i]);
    live += made[i];
    most = std::max(most, live);
  }
  return most;
}

}  // namespace tessera
