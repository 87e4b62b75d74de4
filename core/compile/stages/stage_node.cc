// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/stage_node.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/ops/pipeline.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

template <typename Item>
size_t place_of(std::vector<Item>& items, const Item& item) {
  const auto found = std::ranges::find(items, item);
  const auto place = static_cast<size_t>(found - items.begin());
  if (place == items.size()) items.push_back(item);
  return place;
}

}  // namespace

StageNode::StageNode(const Node& loop_node, const TaskBodies& tasks, const PipelineTable& table,
                     int64_t stage)
    : loop_node_(loop_node), loop_(loop_node), tasks_(tasks), table_(table), stage_(stage) {
  for (const auto& [task, body] : tasks.bodies)
    for (const TaskInput& input : body.inputs)
      if (input.kind == TaskInput::Kind::kValue) add_reader(input.value, stage_of(task));
  for (const auto& [task, body] : tasks.bodies)
    if (stage_of(task) == stage) add_task(task, body);
  add_calls();
}

void StageNode::add_reader(PieceValue value, int64_t reader) {
  const PieceTask& maker = tasks_.makers.at(value);
  const int64_t from = stage_of(maker);
  if (from != reader) transfers_[maker].insert({value, from, reader});
}

StageNode::Port StageNode::slot(PieceValue value) {
  return {Port::Kind::kSlot, slots_.try_emplace(value, slots_.size()).first->second};
}

StageNode::Port StageNode::port(const TaskInput& input) {
  switch (input.kind) {
    case TaskInput::Kind::kSum:
      return {Port::Kind::kSum, place_of(sums_, input.sum)};
    case TaskInput::Kind::kSlice:
      return {Port::Kind::kSlice, place_of(slices_, input.index)};
    case TaskInput::Kind::kConstant:
      return {Port::Kind::kConstant, place_of(constants_, input.index)};
    case TaskInput::Kind::kValue:
      break;
  }
  return slot(input.value);
}

StageNode::Port StageNode::port(const TaskOutput& output) {
  switch (output.kind) {
    case TaskOutput::Kind::kSum:
      return {Port::Kind::kSum, place_of(sums_, output.sum)};
    case TaskOutput::Kind::kResult:
      return {Port::Kind::kResult, place_of(results_, output.index)};
    case TaskOutput::Kind::kValue:
      break;
  }
  return slot(output.value);
}

void StageNode::add_task(const PieceTask& task, const TaskBody& body) {
  Body made{std::make_shared<const Graph>(body.graph), {}, {}, {}};
  const int64_t chunk = task.piece / table_.stages;
  made.work = work_letter(task.work);
  if (chunk > 0) made.work += fmt::format(".{}", chunk);
  for (const TaskInput& input : body.inputs) made.reads.push_back(port(input));
  for (const TaskOutput& output : body.outputs) made.writes.push_back(port(output));
  body_of_task_[task] = add(std::move(made));
}

int64_t StageNode::add(Body body) {
  bodies_.push_back(std::move(body));
  return std::ssize(bodies_) - 1;
}

int64_t StageNode::body_of(const Transfer& transfer, const PieceTask& maker) {
  const auto [found, is_new] = body_of_transfer_.try_emplace(transfer);
  if (is_new) found->second = add(transfer_body(transfer, maker));
  return found->second;
}

// Makes this stage's side of a transfer.
StageNode::Body StageNode::transfer_body(const Transfer& transfer, const PieceTask& maker) {
  const TaskBody& made = tasks_.bodies.at(maker);
  const auto output = std::ranges::find_if(made.outputs, [&](const TaskOutput& each) {
    return each.kind == TaskOutput::Kind::kValue && each.value == transfer.value;
  });
  const auto place = static_cast<size_t>(output - made.outputs.begin());
  const Type& type = made.graph.type(made.graph.outputs()[place].value);
  const Graph& whole = loop_.body();
  const Value& original = whole.value(transfer.value.value);
  const std::string name =
      fmt::format("{}, piece {}", whole.describe(transfer.value.value), maker.piece);
  const bool sends = transfer.from == stage_;
  Graph graph;
  graph.add_input("index", InputKind::kLoop, whole.type(loop_.index()));
  Body body;
  Node node;
  if (sends) {
    const ValueId value = graph.add_input("input 1", InputKind::kLoop, type);
    node = send_node(value, kStageAxis, transfer.to, name);
    body.reads = {slot(transfer.value)};
  } else {
    node = receive_node(type, kStageAxis, transfer.from, name);
    body.writes = {slot(transfer.value)};
  }
  const Node& producer = whole.node(original.producer);
  node.site = producer.site;
  node.path = producer.path;
  node.phase = producer.phase;
  const NodeId id = graph.add_node(
      std::move(node), sends ? std::vector<SharedType>{} : std::vector<SharedType>{type});
  if (!sends) {
    graph.value(graph.node(id).outputs[0]).name = original.name;
    graph.add_output("output 0", graph.node(id).outputs[0]);
  }
  body.graph = std::make_shared<const Graph>(std::move(graph));
  return body;
}

// Returns the tasks of the graph that correspond to a task of the table.
std::vector<PieceTask> StageNode::tasks_of(const PipelineTask& task) const {
  using enum PipelineWork;
  std::vector<PieceTask> found;
  const auto add_if_there = [&](PipelineWork work) {
    const PieceTask own{work, table_.piece(task)};
    if (tasks_.bodies.contains(own)) found.push_back(own);
  };
  add_if_there(task.work);
  if (task.work == kBackward && found.empty()) {
    add_if_there(kBackwardInput);
    add_if_there(kBackwardWeight);
  }
  return found;
}

// Adds calls: at each tick a stage runs its task, then all stages process, in the same order, the
// transfers of the values made at that tick.
void StageNode::add_calls() {
  std::map<int64_t, std::vector<PipelineTask>> by_tick;
  for (const PipelineTask& task : table_.tasks) by_tick[task.tick].push_back(task);
  for (auto& [tick, tasks] : by_tick) {
    std::ranges::sort(tasks, {}, &PipelineTask::stage);
    for (const PipelineTask& task : tasks) {
      if (task.stage != stage_) continue;
      for (const PieceTask& part : tasks_of(task)) call(body_of_task_.at(part), task.microbatch);
    }
    for (const PipelineTask& task : tasks)
      for (const PieceTask& part : tasks_of(task))
        for (const Transfer& transfer : transfers_[part])
          if (transfer.from == stage_ || transfer.to == stage_)
            call(body_of(transfer, part), task.microbatch);
  }
  require_all_called();
}

// Checks that every task is called: otherwise its sums would stay zero.
void StageNode::require_all_called() const {
  std::vector<int64_t> times(bodies_.size());
  for (size_t i = 0; i < calls_.size(); i += 2) ++times[static_cast<size_t>(calls_[i])];
  for (size_t b = 0; b < bodies_.size(); ++b)
    CHECK(times[b] == table_.microbatches, "stage {} runs its task {} ({}) {} times, not {}",
          stage_, b, bodies_[b].work, times[b], table_.microbatches);
}

void StageNode::call(int64_t body, int64_t microbatch) {
  calls_.push_back(body);
  calls_.push_back(microbatch);
}

NodeId StageNode::add_to(Graph& graph, const std::function<ValueId(const PartialSum&)>& initial,
                         const std::function<ValueId(ValueId)>& outer) const {
  Node node = loop_node_;
  node.op = &kPipelineOp;
  node.inputs.clear();
  node.bodies.clear();
  std::vector<SharedType> types;
  for (const PartialSum& sum : sums_) {
    node.inputs.push_back(initial(sum));
    types.push_back(graph.type(node.inputs.back()));
  }
  for (const size_t i : slices_) node.inputs.push_back(outer(loop_.stacked(i)));
  for (const size_t i : constants_) node.inputs.push_back(outer(loop_.constant(i)));
  for (const size_t k : results_)
    types.push_back(
        stacked_type(loop_.body().type(loop_.slice_out(k)), loop_.axis(), loop_.count()));
  node.attributes = {{key::kAxis, loop_.axis()},    {key::kCount, loop_.count()},
                     {key::kCarries, sums_.size()}, {key::kStacked, slices_.size()},
                     {key::kOutputs, types.size()}, {key::kSlots, slots_.size()},
                     {key::kCalls, calls_}};
  std::vector<std::string> works;
  for (const Body& body : bodies_) works.push_back(body.work);
  node.attributes.set(key::kWorks, std::move(works));
  for (size_t b = 0; b < bodies_.size(); ++b) {
    node.bodies.push_back(bodies_[b].graph);
    node.attributes.set(PortsName{reads_attribute(b)},
                        numbers(bodies_[b].reads, node.inputs.size()));
    node.attributes.set(PortsName{writes_attribute(b)}, numbers(bodies_[b].writes, types.size()));
  }
  return graph.add_node(std::move(node), types);
}

// Numbers slots after `others`, the operands or outputs of the node.
std::vector<int64_t> StageNode::numbers(const std::vector<Port>& ports, size_t others) const {
  std::vector<int64_t> numbers;
  for (const Port& port : ports) {
    size_t number = port.index;
    switch (port.kind) {
      case Port::Kind::kSum:
        break;
      case Port::Kind::kSlice:
      case Port::Kind::kResult:
        number += sums_.size();
        break;
      case Port::Kind::kConstant:
        number += sums_.size() + slices_.size();
        break;
      case Port::Kind::kSlot:
        number += others;
        break;
    }
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

}  // namespace tessera
