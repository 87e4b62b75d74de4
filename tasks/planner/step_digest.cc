// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/step_digest.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/compile/cost.h"
#include "core/graph/op.h"
#include "core/hparams/fold_layers.h"
#include "core/io/json.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/launch_trace.h"
#include "tasks/planner/step_timeline.h"

namespace tessera {
namespace {

constexpr size_t kMostRows = 500;
constexpr size_t kMostPoints = 256;
constexpr size_t kMostValues = 24;

// A launch and its wait are of one node.
using NodeKey = std::tuple<const Graph*, NodeId, bool>;

NodeKey key_of(const Launch& launch) {
  return {launch.graph, launch.node, launch.kind == LaunchKind::kWait};
}

ProgramRow row_of(const Launch& launch) {
  const Node& node = launch.graph->node(launch.node);
  ProgramRow row{.phase = node.phase,
                 .path = without_indices(node.path),
                 .name = launch_name(node, launch.kind),
                 .source = node.site.text()};
  if (!node.outputs.empty()) row.result = launch.graph->type(node.outputs[0]).text_sized();
  return row;
}

// What one launch does. A wait does nothing.
ProgramRow work_of(const Launch& launch) {
  ProgramRow work{.count = 1};
  if (launch.kind == LaunchKind::kWait) return work;
  const Node& node = launch.graph->node(launch.node);
  if (is_collective(node)) {
    work.sent = static_cast<double>(sent_bytes(*launch.graph, node));
  } else {
    work.flops = node_flops(*launch.graph, node);
    work.bytes = node_bytes(*launch.graph, node);
  }
  return work;
}

void add(const ProgramRow& work, int64_t times, ProgramRow& row) {
  const auto factor = static_cast<double>(times);
  row.count += times * work.count;
  row.flops += factor * work.flops;
  row.bytes += factor * work.bytes;
  row.sent += factor * work.sent;
}

// Nodes are looked at once, however many launches they have.
std::vector<ProgramRow> rows_of(const StepProgram& step) {
  std::map<NodeKey, size_t> known;
  std::vector<std::pair<const Launch*, int64_t>> nodes;  // The first launch, and how many.
  for (const Launch& launch : step.launches) {
    const auto [at, is_new] = known.try_emplace(key_of(launch), nodes.size());
    if (is_new) nodes.emplace_back(&launch, 0);
    ++nodes[at->second].second;
  }
  std::vector<ProgramRow> rows;
  std::map<std::tuple<Phase, std::string, std::string, std::string>, size_t> alike;
  for (const auto& [launch, count] : nodes) {
    ProgramRow row = row_of(*launch);
    const auto [at, is_new] =
        alike.try_emplace({row.phase, row.path, row.name, row.source}, rows.size());
    if (is_new) rows.push_back(std::move(row));
    add(work_of(*launch), count, rows[at->second]);
  }
  return rows;
}

// Moves the rows that move least bytes to `left_out`, if there are too many.
void limit(std::vector<ProgramRow>& rows, ProgramRow& left_out) {
  if (rows.size() <= kMostRows) return;
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return rows[i].bytes + rows[i].sent; });
  std::ranges::sort(order.begin(), order.begin() + kMostRows);
  for (size_t i = kMostRows; i < order.size(); ++i) add(rows[order[i]], 1, left_out);
  std::vector<ProgramRow> kept;
  for (size_t i = 0; i < kMostRows; ++i) kept.push_back(std::move(rows[order[i]]));
  rows = std::move(kept);
}

std::optional<int64_t> first_of(const StepProgram& step, Phase phase) {
  if (!step.tasks.empty()) return std::nullopt;
  for (const LaunchId id : step.launches.ids()) {
    const Launch& launch = step.launches[id];
    if (launch.graph->node(launch.node).phase == phase) return static_cast<int64_t>(id.index());
  }
  return std::nullopt;
}

// What blocks of the arena hold after a launch.
class Holders {
 public:
  Holders(const StepProgram& step, int64_t launch) : step_(step), launch_(launch) {
    for (const PackedBlock& block : step.blocks)
      if (block.bytes > 0 && block.first <= launch && launch <= block.last)
        alive_.push_back({&block, ""});
    std::ranges::sort(alive_, {}, [](const Held& held) { return held.block->offset; });
  }

  // The held values by name without indices, with the bytes of all layers together; the largest
  // first.
  std::vector<HeldValue> values() {
    name_inputs();
    name_written();
    std::map<std::string, HeldValue> by_name;
    for (const Held& held : alive_) {
      const std::string name = held.name.empty() ? "unnamed" : without_indices(held.name);
      HeldValue& value = by_name[name];
      value.name = name;
      ++value.count;
      value.bytes += aligned(held.block->bytes);
    }
    std::vector<HeldValue> values;
    for (auto& [name, value] : by_name) values.push_back(std::move(value));
    return values;
  }

 private:
  struct Held {
    const PackedBlock* block = nullptr;
    std::string name;
  };

  // The block in use at the peak that has this byte of the arena; nullptr: none.
  Held* at(int64_t offset) {
    offset -= step_.persistent_bytes;
    const auto after = std::ranges::upper_bound(
        alive_, offset, {}, [](const Held& held) { return held.block->offset; });
    if (after == alive_.begin()) return nullptr;
    Held& held = *std::prev(after);
    return offset < held.block->offset + held.block->bytes ? &held : nullptr;
  }

  void name_inputs() {
    for (const Placement& input : step_.inputs)
      if (Held* held = at(input.offset); held != nullptr && held->block->first < 0)
        held->name = input.name;
  }

  // Names each block by the last launch that has written to it.
  void name_written() {
    struct Writer {
      const Launch* launch = nullptr;
      size_t output = 0;
    };
    std::map<Held*, Writer> writers;
    int64_t position = 0;
    for (const Launch& launch : step_.launches) {
      if (position > launch_) break;
      for (size_t i = 0; i < launch.outputs.size(); ++i) {
        Held* held = at(launch.outputs[i]);
        if (held != nullptr && held->block->first <= position) writers[held] = {&launch, i};
      }
      ++position;
    }
    for (const auto& [held, writer] : writers) {
      const Graph& graph = *writer.launch->graph;
      held->name = graph.describe(graph.node(writer.launch->node).outputs[writer.output]);
    }
    const Launch& now = step_.launches[LaunchId(static_cast<size_t>(launch_))];
    if (Held* held = at(now.scratch); held != nullptr && held->name.empty())
      held->name = "scratch of " + launch_name(now.graph->node(now.node), now.kind);
  }

  const StepProgram& step_;
  const int64_t launch_;
  std::vector<Held> alive_;  // By offset; at one launch blocks do not overlap.
};

// Lists the values in use at the peak: parameters, state, and blocks. The smallest ones are counted
// together.
void name_values(const StepProgram& step, ProgramMemory& memory) {
  std::vector<HeldValue> values = Holders(step, memory.peak.launch).values();
  const auto count = [&](InputKind kind) {
    return std::ranges::count(step.inputs, kind, &Placement::kind);
  };
  values.push_back({"parameters", count(InputKind::kParameter), step.use.parameters});
  values.push_back({"optimizer state", count(InputKind::kState), step.use.state});
  std::erase_if(values, [](const HeldValue& value) { return value.bytes == 0; });
  std::ranges::stable_sort(values, std::ranges::greater(), &HeldValue::bytes);
  for (size_t i = kMostValues; i < values.size(); ++i) memory.others.count += values[i].count;
  values.resize(std::min(values.size(), kMostValues));
  memory.others.bytes = memory.peak.bytes;
  for (const HeldValue& value : values) memory.others.bytes -= value.bytes;
  memory.values = std::move(values);
}

ProgramMemory memory_of(const StepProgram& step) {
  const std::vector<MemoryAt> curve = memory_curve(step);
  ProgramMemory memory;
  if (curve.empty()) return memory;
  const auto point = [&](size_t launch) {
    return ProgramMemory::Point{static_cast<int64_t>(launch), curve[launch].used,
                                curve[launch].bytes()};
  };
  for (const size_t launch : fullest_launches(curve, kMostPoints))
    memory.points.push_back(point(launch));
  memory.peak = point(fullest_launches(curve, 1)[0]);
  const Launch& launch = step.launches[LaunchId(static_cast<size_t>(memory.peak.launch))];
  const Node& node = launch.graph->node(launch.node);
  memory.at = launch_name(node, launch.kind);
  if (!node.path.empty()) memory.at += " in " + node.path;
  name_values(step, memory);
  return memory;
}

void add_work(JsonLine& json, const ProgramRow& row) {
  json.add("count", row.count).add("flops", row.flops).add("bytes", row.bytes);
  json.add("sent_bytes", row.sent);
}

std::string row_json(const ProgramRow& row) {
  JsonLine json;
  json.add("phase", phase_name(row.phase))
      .add("path", std::string_view(row.path))
      .add("name", std::string_view(row.name))
      .add("source", std::string_view(row.source))
      .add("result", std::string_view(row.result));
  add_work(json, row);
  return json.text();
}

std::string held_json(const HeldValue& value) {
  return json_object({{"name", value.name}, {"count", value.count}, {"bytes", value.bytes}});
}

std::string memory_json(const ProgramMemory& memory) {
  const auto point_json = [](const ProgramMemory::Point& point) {
    return fmt::format("[{}, {}, {}]", point.launch, point.used, point.bytes);
  };
  return json_object({{"peak_bytes", memory.peak.bytes},
                      {"peak_launch", memory.peak.launch},
                      {"at", memory.at},
                      {"values", RawJson{json_list(memory.values, held_json, ",\n  ")}},
                      {"other_values", memory.others.count},
                      {"other_bytes", memory.others.bytes},
                      {"points", RawJson{json_list(memory.points, point_json)}}});
}

}  // namespace

StepDigest step_digest(const StepProgram& step) {
  StepDigest program{.launches = static_cast<int64_t>(step.launches.size()),
                     .rows = rows_of(step),
                     .backward = first_of(step, Phase::kBackward),
                     .update = first_of(step, Phase::kUpdate),
                     .memory = memory_of(step)};
  limit(program.rows, program.left_out);
  return program;
}

std::string program_json(const StepDigest& program) {
  JsonLine json;
  json.add("launches_per_step", program.launches);
  if (program.backward) json.add("backward", *program.backward);
  if (program.update) json.add("update", *program.update);
  json.add_raw("rows", json_list(program.rows, row_json, ",\n  "));
  if (program.left_out.count > 0) {
    JsonLine left_out;
    add_work(left_out, program.left_out);
    json.add_raw("left_out", left_out.text());
  }
  return json.add_raw("memory", memory_json(program.memory)).text();
}

}  // namespace tessera
