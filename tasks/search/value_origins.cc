// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/value_origins.h"

#include <algorithm>
#include <string>

#include "core/graph/op.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// What overlap() may run earlier.
bool is_cheap(const Node& node) {
  const OpClass kind = node.op->op_class;
  return (kind == OpClass::kElementwise || kind == OpClass::kDataMovement ||
          kind == OpClass::kView || kind == OpClass::kCollective) &&
         node.phase != Phase::kUpdate;
}

}  // namespace

bool divides_batch(std::string_view mesh_axis) {
  return mesh_axis == "replica" || mesh_axis == "data";
}

ValueOrigins::ValueOrigins(const Graph& graph, const Mesh& mesh) : mesh_(mesh) {
  std::vector<Origin> inputs;
  for (const GraphInput& input : graph.inputs()) {
    const bool is_stored = input.kind == InputKind::kParameter || input.kind == InputKind::kState;
    inputs.push_back({is_stored, is_stored});
  }
  walk(graph, inputs);
}

bool ValueOrigins::is_common(const Graph& graph, const Node& node) const {
  const Flags& flags = of(graph);
  bool depends = false;
  for (const ValueId value : node.inputs) {
    if (flags.early[value]) continue;
    if (flags.differs[value]) return false;
    depends = true;
  }
  return depends && node.phase != Phase::kUpdate && !crosses_batch(node);
}

bool ValueOrigins::crosses_batch(const Node& node) const {
  return is_collective(node) &&
         std::ranges::any_of(node.attributes.get<std::vector<std::string>>("mesh_axes"),
                             divides_batch);
}

const ValueOrigins::Flags& ValueOrigins::walk(const Graph& graph,
                                              const std::vector<Origin>& inputs) {
  Flags& flags = flags_[&graph];
  if (flags.is_new) {
    flags = {ValueFlags(graph.values().size()), ValueFlags(graph.values().size()), false};
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = graph.inputs()[i].value;
    flags.early[value] = flags.early[value] || inputs[i].is_early;
    flags.differs[value] = flags.differs[value] || inputs[i].differs;
  }
  for (const Node& node : graph.nodes()) {
    if (is_repeat(node)) {
      walk_loop(node, flags);
    } else if (is_pipeline(node)) {
      walk_pipeline(node, flags);
    } else {
      set_results(node, flags);
    }
  }
  return flags;
}

void ValueOrigins::set_results(const Node& node, Flags& flags) const {
  bool all_early = !node.inputs.empty(), differs = false;
  for (const ValueId value : node.inputs) {
    all_early = all_early && flags.early[value];
    differs = differs || (flags.differs[value] && !flags.early[value]);
  }
  const bool early = all_early && is_cheap(node);
  // What is computed from a part of a parameter has the size of that part.
  differs = differs || all_early || crosses_batch(node) || node.phase == Phase::kUpdate;
  for (const ValueId value : node.outputs) {
    flags.early[value] = early;
    flags.differs[value] = differs;
  }
}

void ValueOrigins::walk_loop(const Node& node, Flags& flags) {
  const Loop loop(node);
  std::vector<Origin> inputs = {{true, false}};  // The index.
  for (size_t i = 0; i < loop.operands(); ++i) {
    const ValueId value = loop.operand(i);
    // A carry is what an iteration computes.
    inputs.push_back({i >= loop.carries() && flags.early[value],
                      flags.differs[value] && (i >= loop.carries() || !flags.early[value])});
  }
  const Flags* inside = nullptr;
  for (bool is_done = false; !is_done;) {
    inside = &walk(loop.body(), inputs);
    is_done = true;
    for (size_t i = 0; i < loop.carries(); ++i) {
      if (!inside->differs[loop.carry_out(i)] || inputs[1 + i].differs) continue;
      inputs[1 + i].differs = true;
      is_done = false;
    }
  }
  for (size_t i = 0; i < loop.outputs(); ++i) {
    const ValueId value = loop.output_in(i);
    flags.early[node.outputs[i]] = i >= loop.carries() && inside->early[value];
    flags.differs[node.outputs[i]] = inside->differs[value];
  }
}

void ValueOrigins::walk_pipeline(const Node& node, Flags& flags) {
  const Pipeline pipeline(node);
  std::vector<Origin> outputs(pipeline.outputs()), slots(pipeline.slots());
  const auto read = [&](int64_t number) {
    const auto position = static_cast<size_t>(number);
    if (position >= pipeline.operands()) return slots[position - pipeline.operands()];
    const ValueId value = node.inputs[position];
    if (pipeline.is_carry(number))
      return Origin{false, outputs[position].differs || flags.differs[value]};
    return Origin{flags.early[value], flags.differs[value]};
  };
  for (bool is_done = false; !is_done;) {
    is_done = true;
    for (size_t b = 0; b < pipeline.bodies(); ++b) {
      std::vector<Origin> inputs = {{true, false}};
      for (const int64_t number : pipeline.reads(b)) inputs.push_back(read(number));
      const Flags& inside = walk(pipeline.body(b), inputs);
      const std::vector<int64_t>& writes = pipeline.writes(b);
      for (size_t i = 0; i < writes.size(); ++i) {
        const auto position = static_cast<size_t>(writes[i]);
        Origin& written =
            position < outputs.size() ? outputs[position] : slots[position - outputs.size()];
        const ValueId value = pipeline.body(b).outputs()[i].value;
        const Origin now{written.is_early || inside.early[value],
                         written.differs || inside.differs[value]};
        if (now.is_early != written.is_early || now.differs != written.differs) is_done = false;
        written = now;
      }
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    flags.early[node.outputs[i]] = false;
    flags.differs[node.outputs[i]] = outputs[i].differs;
  }
}

}  // namespace tessera
