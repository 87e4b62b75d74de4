// SPDX-License-Identifier: Apache-2.0
// Why some mutants compute the same: a table of reasons, each with the mutants that it covers.
#include <algorithm>

#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/grouped_product.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "tests/mutants/judgement.h"

namespace tessera {
namespace {

// The mutant's node in the program of the first device that has it.
struct MutatedNode {
  const Graph& graph;
  const Node& node;
  const Mutant& mutant;

  bool is(std::string_view kind) const { return mutant.kind == kind; }
  const Node* producer() const {
    const NodeId id = graph.value(node.inputs[0]).producer;
    return id == kNone ? nullptr : &graph.node(id);
  }
  bool is_made_by(const OpDef& op) const { return producer() != nullptr && producer()->op == &op; }
  // Whether the first reader also reads a value that is masked to another device.
  bool is_masked_beside() const {
    const Consumers readers(graph);
    for (const ValueId value : graph.node(readers[node.outputs[0]].front()).inputs) {
      const NodeId id = graph.value(value).producer;
      if (value == node.outputs[0] || id == kNone) continue;
      const Node& other = graph.node(id);
      if (other.op == &kMaskToOwnerOp && !other.attributes.get(key::kIsOwner)) return true;
    }
    return false;
  }
  // Whether all readers of the result are of these ops.
  bool is_read_by(const std::vector<const OpDef*>& ops) const {
    const Consumers readers(graph);
    return std::ranges::all_of(readers[node.outputs[0]], [&](NodeId id) {
      return std::ranges::find(ops, graph.node(id).op) != ops.end();
    });
  }
};

struct Reason {
  const char* text;
  bool (*covers)(const MutatedNode& m);
};

const std::vector<Reason> kReasons = {
    {"The maximum of equal values is their value.",
     [](const MutatedNode& m) {
       return m.is("double reduction") && m.node.op == &kAllReduceOp &&
              m.node.attributes.get(key::kReduction) == "max";
     }},
    {"The first part of a first part of the same size is this part.",
     [](const MutatedNode& m) {
       return m.is("double slice") && m.node.op == &kSliceOp &&
              m.node.attributes.get(key::kBegin) == 0;
     }},
    {"Zeros, which begin a sum over microbatches, are zeros with any mask and in any part.",
     [](const MutatedNode& m) {
       return (m.node.op == &kMaskToOwnerOp || m.node.op == &kSliceOp) &&
              m.is_made_by(kConstantOp) && m.producer()->attributes.get(key::kValue) == 0.0;
     }},
    {"The other term of the sum is zero: it is masked on this stage too.",
     [](const MutatedNode& m) {
       return m.is("move mask") && m.mutant.how == "after add" && m.is_masked_beside();
     }},
    {"A part of ring attention without keys has the weight zero, masked or not.",
     [](const MutatedNode& m) {
       return m.node.op == &kMaskOp && m.is_made_by(kAttentionOp) && !m.is("retype mask");
     }},
    {"Readers select rows by id or position, and the first copy has them there.",
     [](const MutatedNode& m) {
       return m.is("double gather") &&
              m.is_read_by({&kGroupedProductOp, &kSliceOp, &kPickOp, &kGatherOp});
     }},
};

MutatedNode node_of(const LoweredStep& step, const Mutant& mutant) {
  int64_t device = 0;
  while (step.stage_of(device) != mutant.stage) ++device;
  const Graph* graph = &step.graphs[static_cast<size_t>(device)].graph;
  for (size_t i = 0; i + 1 < mutant.path.size(); i += 2)
    graph = graph->node(NodeId(mutant.path[i])).bodies[mutant.path[i + 1]].get();
  return {*graph, graph->node(NodeId(mutant.path.back())), mutant};
}

}  // namespace

std::string reason_for(const LoweredStep& step, const Mutant& mutant) {
  const MutatedNode node = node_of(step, mutant);
  for (const Reason& reason : kReasons)
    if (reason.covers(node)) return reason.text;
  return "";
}

}  // namespace tessera
