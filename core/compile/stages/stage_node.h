// SPDX-License-Identifier: Apache-2.0
// The `pipeline` node of one stage: the graphs of its tasks and transfers, and their order.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/compile/stages/task_bodies.h"
#include "core/schedules/table.h"

namespace tessera {

class StageNode {
 public:
  // For the loop over microbatches `loop_node`, whose tasks are `tasks`. All must outlive it.
  StageNode(const Node& loop_node, const TaskBodies& tasks, const PipelineTable& table,
            int64_t stage);

  // Returns the sums and stacked results of this stage, in the order of the node's outputs.
  const std::vector<PartialSum>& sums() const { return sums_; }
  const std::vector<size_t>& results() const { return results_; }

  // Adds the node to `graph`. `initial` returns the initial value of a sum, `outer` the value of
  // another operand of the loop.
  NodeId add_to(Graph& graph, const std::function<ValueId(const PartialSum&)>& initial,
                const std::function<ValueId(ValueId)>& outer) const;

 private:
  // The transfer of one value from the stage that makes it to one that reads it.
  struct Transfer {
    PieceValue value;
    int64_t from = 0, to = 0;
    auto operator<=>(const Transfer&) const = default;
  };
  // The index of an operand or result among those of its kind.
  struct Port {
    enum class Kind { kSum, kSlice, kConstant, kResult, kSlot };
    Kind kind = Kind::kSlot;
    size_t index = 0;
  };
  struct Body {
    std::shared_ptr<const Graph> graph;
    std::vector<Port> reads, writes;
    std::string work;  // "F", "B.1"; "" for a transfer.
  };

  int64_t stage_of(const PieceTask& task) const { return task.piece % table_.stages; }
  void add_reader(PieceValue value, int64_t reader);
  Port slot(PieceValue value);
  Port port(const TaskInput& input);
  Port port(const TaskOutput& output);
  void add_task(const PieceTask& task, const TaskBody& body);
  int64_t add(Body body);
  int64_t body_of(const Transfer& transfer, const PieceTask& maker);
  Body transfer_body(const Transfer& transfer, const PieceTask& maker);
  std::vector<PieceTask> tasks_of(const PipelineTask& task) const;
  void add_calls();
  void call(int64_t body, int64_t microbatch);
  void require_all_called() const;
  std::vector<int64_t> numbers(const std::vector<Port>& ports, size_t others) const;

  const Node& loop_node_;
  const Loop loop_;
  const TaskBodies& tasks_;
  const PipelineTable& table_;
  int64_t stage_;
  std::map<PieceTask, std::set<Transfer>> transfers_;  // By the task that makes the value.
  std::vector<PartialSum> sums_;
  std::vector<size_t> slices_, constants_, results_;
  std::map<PieceValue, size_t> slots_;
  std::vector<Body> bodies_;
  std::map<PieceTask, int64_t> body_of_task_;
  std::map<Transfer, int64_t> body_of_transfer_;
  std::vector<int64_t> calls_;
};

}  // namespace tessera
