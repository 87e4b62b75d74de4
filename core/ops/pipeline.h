// SPDX-License-Identifier: Apache-2.0
// The work of one stage of a pipeline in a step: the tasks of a schedule and the transfers between
// stages, in order. Lowering makes it from a loop over microbatches
// (core/compile/stages/stage_graph.h); layers never trace it. Node layout of op "pipeline":
//   attributes: axis, count (microbatches), carries, stacked, outputs, slots, calls; works (of each
//               body: "F", or "F.1" in chunk 1; "" of a transfer); for body b "reads b", "writes b"
//   inputs:  [carries…, stacked… (leading axis `axis`, size count), constants…]
//   outputs: [carries…, stacked results…]
// A body runs once for each of its calls, each time for one microbatch. A slot is a value that one
// body computes and others read for the same microbatch: an activation that waits for the backward
// pass, or one from another stage.
//   inputs of body b:  [index (i32 scalar: the microbatch), the values that "reads b" names…]
//   outputs of body b: [the values that "writes b" names…]
// A number n in "reads b" is operand n of the node (a carry has the value of the call before, a
// stacked operand is sliced), or slot n - operands. In "writes b" it is output n of the node (a
// carry is replaced, a result is one slice of it), or slot n - outputs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

namespace key {
inline constexpr AttributeName<size_t> kOutputs{"outputs"}, kSlots{"slots"};
inline constexpr AttributeName<std::vector<int64_t>> kCalls{"calls"};  // Body, microbatch, …
inline constexpr AttributeName<std::vector<std::string>> kWorks{"works"};
}  // namespace key
extern const Op kPipelineOp;

bool is_pipeline(const Node& node);

struct PipelineCall {
  int64_t body = 0;
  int64_t microbatch = 0;
};

// The names of the attributes that say what a body reads and writes: PortsName{reads_attribute(b)}.
using PortsName = AttributeName<std::vector<int64_t>>;
std::string reads_attribute(size_t body);
std::string writes_attribute(size_t body);

// The parts of a `pipeline` node by their role.
class Pipeline {
 public:
  explicit Pipeline(const Node& node);  // `node` must outlive it.

  const std::string& axis() const { return node_->attributes.get(key::kAxis); }
  int64_t count() const { return node_->attributes.get(key::kCount); }
  size_t carries() const { return node_->attributes.get(key::kCarries); }
  size_t stacked() const { return node_->attributes.get(key::kStacked); }
  size_t operands() const { return node_->inputs.size(); }
  size_t outputs() const { return node_->outputs.size(); }
  size_t slots() const { return node_->attributes.get(key::kSlots); }
  size_t bodies() const { return node_->bodies.size(); }
  const Graph& body(size_t b) const { return *node_->bodies[b]; }
  const std::vector<int64_t>& reads(size_t b) const {
    return node_->attributes.get(PortsName{reads_attribute(b)});
  }
  const std::vector<int64_t>& writes(size_t b) const {
    return node_->attributes.get(PortsName{writes_attribute(b)});
  }
  std::vector<PipelineCall> calls() const;
  // Returns the task of a call: "F3" or "F3.1" (core/schedules/table.h); "" for a transfer.
  std::string task_name(const PipelineCall& call) const;

  bool is_carry(int64_t number) const { return static_cast<size_t>(number) < carries(); }
  bool is_stacked(int64_t operand) const {
    return !is_carry(operand) && static_cast<size_t>(operand) < carries() + stacked();
  }

 private:
  const Node* node_;
};

// Returns whether the bodies of a node are graphs that it runs, as for a loop or a pipeline, and
// not one kernel, as for `fused`.
bool runs_bodies(const Node& node);
// Returns these graphs, and how often each runs when the node runs once; empty for other nodes.
std::vector<std::pair<const Graph*, int64_t>> run_bodies(const Node& node);

}  // namespace tessera
