// SPDX-License-Identifier: Apache-2.0
#include "core/passes/pipeline/stage_graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/pipeline.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/passes/pipeline/split_backward.h"
#include "core/passes/pipeline/task_bodies.h"
#include "core/passes/rewrite.h"

namespace tessera {
namespace {

constexpr std::string_view kStage = "stage";

bool is_loop_over_microbatches(const Node& node) {
  return is_repeat(node) && std::ranges::any_of(Loop(node).body().nodes(), is_stage_gather);
}

bool has_work(const PipelineTable& table, PipelineWork work) {
  return std::ranges::find(table.tasks, work, &PipelineTask::work) != table.tasks.end();
}

std::vector<LayerPiece> divide(const Mesh& mesh, const PipelineTable& table, int64_t layers) {
  if (table.stages != mesh.size(kStage))
    fail("the pipeline schedule '{}' is for {} stages, the mesh has {} ({})", table.name,
         table.stages, mesh.size(kStage), mesh.text());
  const LayerPieces division = mesh.layer_pieces_of(layers);
  if (division.pieces() != table.pieces())
    fail("the pipeline schedule '{}' has {} pieces, the layers are divided into {}", table.name,
         table.pieces(), division.pieces());
  std::vector<LayerPiece> pieces;
  for (int64_t p = 0; p < table.pieces(); ++p)
    pieces.push_back({division.first_layer(p), division.layers(p), division.first_row(p)});
  return pieces;
}

// One value on its way from the stage that makes it to one that reads it.
struct Transfer {
  PieceValue value;
  int64_t from = 0, to = 0;
  auto operator<=>(const Transfer&) const = default;
};

// Makes the `pipeline` node of a stage.
class StageNode {
 public:
  StageNode(const Node& loop_node, const TaskBodies& tasks, const PipelineTable& table,
            int64_t stage)
      : loop_node_(loop_node), loop_(loop_node), tasks_(tasks), table_(table), stage_(stage) {
    for (const auto& [task, body] : tasks.bodies)
      for (const TaskInput& input : body.inputs)
        if (input.kind == TaskInput::Kind::kValue) add_reader(input.value, stage_of(task));
    for (const auto& [task, body] : tasks.bodies)
      if (stage_of(task) == stage) add_task(task, body);
    add_calls();
  }

  const std::vector<PartialSum>& sums() const { return sums_; }
  const std::vector<size_t>& results() const { return results_; }

  // The node in `graph`: `initial` gives the value that a sum starts from, `outer` that of another
  // operand of the loop.
  template <typename Initial, typename Outer>
  NodeId add_to(Graph& graph, const Initial& initial, const Outer& outer) const {
    Node node = loop_node_;
    node.op = &kPipelineOp;
    node.outputs.clear();
    node.inputs.clear();
    node.bodies.clear();
    std::vector<Type> types;
    for (const PartialSum& sum : sums_) {
      node.inputs.push_back(initial(sum));
      types.push_back(graph.type(node.inputs.back()));
    }
    for (const size_t i : slices_) node.inputs.push_back(outer(loop_.stacked(i)));
    for (const size_t i : constants_) node.inputs.push_back(outer(loop_.constant(i)));
    for (const size_t k : results_)
      types.push_back(stacked_type(loop_.body().type(loop_.slice_out(k)), loop_.axis(), loop_.count()));
    node.attributes = {{"axis", loop_.axis()},
                       {"count", loop_.count()},
                       {"carries", static_cast<int64_t>(sums_.size())},
                       {"stacked", static_cast<int64_t>(slices_.size())},
                       {"outputs", static_cast<int64_t>(types.size())},
                       {"slots", static_cast<int64_t>(slots_.size())},
                       {"calls", calls_}};
    for (size_t b = 0; b < bodies_.size(); ++b) {
      node.bodies.push_back(bodies_[b].graph);
      node.attributes.set(reads_attribute(b), numbers(bodies_[b].reads));
      node.attributes.set(writes_attribute(b), numbers(bodies_[b].writes));
    }
    return graph.add_node(std::move(node), types);
  }

 private:
  // The place of an operand or result among those of its kind.
  struct Port {
    enum class Kind { kSum, kSlice, kConstant, kResult, kSlot };
    Kind kind = Kind::kSlot;
    size_t index = 0;
  };
  struct Body {
    std::shared_ptr<const Graph> graph;
    std::vector<Port> reads, writes;
  };

  int64_t stage_of(const PieceTask& task) const { return task.piece % table_.stages; }

  void add_reader(PieceValue value, int64_t reader) {
    const PieceTask& maker = tasks_.makers.at(value);
    const int64_t from = stage_of(maker);
    if (from != reader) transfers_[maker].insert({value, from, reader});
  }

  template <typename Item>
  static size_t place_of(std::vector<Item>& items, const Item& item) {
    const auto found = std::ranges::find(items, item);
    if (found == items.end()) items.push_back(item);
    return static_cast<size_t>(found - items.begin());
  }

  Port slot(PieceValue value) {
    return {Port::Kind::kSlot, slots_.try_emplace(value, slots_.size()).first->second};
  }

  void add_task(const PieceTask& task, const TaskBody& body) {
    Body made{std::make_shared<const Graph>(body.graph), {}, {}};
    for (const TaskInput& input : body.inputs) {
      switch (input.kind) {
        case TaskInput::Kind::kSum:
          made.reads.push_back({Port::Kind::kSum, place_of(sums_, input.sum)});
          break;
        case TaskInput::Kind::kSlice:
          made.reads.push_back({Port::Kind::kSlice, place_of(slices_, input.index)});
          break;
        case TaskInput::Kind::kConstant:
          made.reads.push_back({Port::Kind::kConstant, place_of(constants_, input.index)});
          break;
        case TaskInput::Kind::kValue:
          made.reads.push_back(slot(input.value));
          break;
      }
    }
    for (const TaskOutput& output : body.outputs) {
      switch (output.kind) {
        case TaskOutput::Kind::kSum:
          made.writes.push_back({Port::Kind::kSum, place_of(sums_, output.sum)});
          break;
        case TaskOutput::Kind::kResult:
          made.writes.push_back({Port::Kind::kResult, place_of(results_, output.index)});
          break;
        case TaskOutput::Kind::kValue:
          made.writes.push_back(slot(output.value));
          break;
      }
    }
    body_of_task_[task] = add(std::move(made));
  }

  int64_t add(Body body) {
    bodies_.push_back(std::move(body));
    return std::ssize(bodies_) - 1;
  }

  // This stage's side of a transfer.
  int64_t body_of(const Transfer& transfer, const PieceTask& maker) {
    const auto [found, is_new] = body_of_transfer_.try_emplace(transfer);
    if (!is_new) return found->second;
    const TaskBody& made = tasks_.bodies.at(maker);
    const auto output = std::ranges::find_if(made.outputs, [&](const TaskOutput& each) {
      return each.kind == TaskOutput::Kind::kValue && each.value == transfer.value;
    });
    const auto place = static_cast<size_t>(output - made.outputs.begin());
    const Type& type = made.graph.type(made.graph.outputs()[place].value);
    const Graph& whole = loop_.body();
    const Value& original = whole.value(transfer.value.value);
    const std::string name = fmt::format("{}, piece {}", whole.describe(transfer.value.value),
                                         maker.piece);
    Graph graph;
    graph.add_input("index", InputKind::kLoop, whole.type(loop_.index()));
    Node node;
    Body body;
    const bool sends = transfer.from == stage_;
    if (sends) {
      node = send_node(graph.add_input("input 1", InputKind::kLoop, type), kStage, transfer.to, name);
      body.reads = {slot(transfer.value)};
    } else {
      node = receive_node(type, kStage, transfer.from, name);
      body.writes = {slot(transfer.value)};
    }
    const Node& producer = whole.node(original.producer);
    node.site = producer.site;
    node.path = producer.path;
    node.phase = producer.phase;
    const NodeId id = graph.add_node(std::move(node), sends ? std::vector<Type>{} : std::vector{type});
    if (!sends) {
      graph.value(graph.node(id).outputs[0]).name = original.name;
      graph.add_output("output 0", graph.node(id).outputs[0]);
    }
    body.graph = std::make_shared<const Graph>(std::move(graph));
    return found->second = add(std::move(body));
  }

  void call(int64_t body, int64_t microbatch) {
    calls_.push_back(body);
    calls_.push_back(microbatch);
  }

  // The tasks of the loop that a task of the table stands for.
  std::vector<PieceTask> tasks_of(const PipelineTask& task) const {
    using enum PipelineWork;
    const int64_t piece = table_.piece(task);
    std::vector<PieceTask> found;
    const auto add = [&](PipelineWork work) {
      if (tasks_.bodies.contains({work, piece})) found.push_back({work, piece});
    };
    add(task.work);
    if (task.work == kBackward && found.empty()) {
      add(kBackwardInput);
      add(kBackwardWeight);
    }
    return found;
  }

  void add_calls() {
    std::map<int64_t, std::vector<PipelineTask>> by_tick;
    for (const PipelineTask& task : table_.tasks) by_tick[task.tick].push_back(task);
    for (auto& [tick, tasks] : by_tick) {
      std::ranges::sort(tasks, {}, &PipelineTask::stage);
      for (const PipelineTask& task : tasks)
        if (task.stage == stage_)
          for (const PieceTask& part : tasks_of(task)) call(body_of_task_.at(part), task.microbatch);
      for (const PipelineTask& task : tasks)
        for (const PieceTask& part : tasks_of(task))
          for (const Transfer& transfer : transfers_[part])
            if (transfer.from == stage_ || transfer.to == stage_)
              call(body_of(transfer, part), task.microbatch);
    }
  }

  std::vector<int64_t> numbers(const std::vector<Port>& ports) const {
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
          break;
      }
      numbers.push_back(static_cast<int64_t>(number));
    }
    return numbers;
  }

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

}  // namespace
}  // namespace tessera
