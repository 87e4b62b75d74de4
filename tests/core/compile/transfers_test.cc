// SPDX-License-Identifier: Apache-2.0
// Passes on graphs with sends and receives. Devices at other stages run other programs: transfers,
// and collectives along their mesh axis, stay and keep their order.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/compile/cost.h"
#include "core/compile/memory/flat_program.h"
#include "core/compile/schedule/schedule.h"
#include "core/compile/simplify.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kRows = "f32[\"row=16\"]";
constexpr int64_t kBytes = 64;

// A graph that layers trace and to which transfers are added.
struct Stage : Trial {
  explicit Stage(const Names& types = {kRows}, const Mesh& mesh = Mesh({{"stage", 2}}))
      : Trial(mesh, types) {}

  void send(const Tensor& x, const std::string& slot, int64_t peer = 1) {
    x.graph()->add_node(send_node(x.id(), "stage", peer, slot), {});
  }
  Tensor receive(const std::string& slot, int64_t peer = 1, const char* type = kRows) {
    const NodeId id =
        graph().add_node(receive_node(parse_type(type), "stage", peer, slot), {parse_type(type)});
    return {&graph(), graph().node(id).outputs[0]};
  }
  Tensor all_reduce(const Tensor& x, const std::string& mesh_axis, Phase phase) {
    Node node{.op = &kAllReduceOp, .inputs = {x.id()}};
    node.attributes = {{key::kMeshAxes, Names{mesh_axis}}, {key::kReduction, "sum"}};
    node.phase = phase;
    const NodeId id = graph().add_node(std::move(node), {x.type()});
    return {&graph(), graph().node(id).outputs[0]};
  }
};

// "send h" for transfers, else the op.
std::string name_of(const Node& node) {
  const std::string op(node.op->name);
  return is_transfer(node) ? op + " " + node.attributes.get(key::kSlot) : op;
}

Names names_of(const Graph& graph) {
  Names names;
  for (const Node& node : graph.nodes()) names.push_back(name_of(node));
  return names;
}

TEST_CASE("A device sends to the device with its other coordinates") {
  const Mesh mesh({{"replica", 2}, {"stage", 3}, {"data", 2}});
  Stage stage({kRows}, mesh);
  stage.send(stage.inputs()[0], "h", 2);
  output("y", sin(stage.receive("g", 2)));
  const auto coordinates = [&](int64_t replica, int64_t at, int64_t data) {
    return (replica * 3 + at) * 2 + data;
  };
  for (const int64_t own : {0, 1}) {
    const int64_t self = coordinates(1, own, 1), peer = coordinates(1, 2, 1);
    const Graph lowered = lower(stage.graph(), mesh, self);
    const auto& send = lowered.node(NodeId(0)).attributes;
    const auto& receive = lowered.node(NodeId(1)).attributes;
    for (const Attributes* each : {&send, &receive}) {
      REQUIRE(each->get(key::kGroup) == std::vector<int64_t>{self, peer});
      REQUIRE(each->get(key::kIndex) == 0);
    }
    REQUIRE((send.get(key::kFrom) == self && send.get(key::kTo) == peer));
    REQUIRE((receive.get(key::kFrom) == peer && receive.get(key::kTo) == self));
  }
  Stage last({kRows}, mesh);
  last.send(last.inputs()[0], "g", 0);
  const Graph lowered = lower(last.graph(), mesh, coordinates(0, 2, 1));
  const auto& send = lowered.node(NodeId(0)).attributes;
  REQUIRE(send.get(key::kGroup) ==
          std::vector<int64_t>{coordinates(0, 0, 1), coordinates(0, 2, 1)});
  REQUIRE(send.get(key::kIndex) == 1);
}

TEST_CASE("Transfers are neither dead nor equal, also in loops") {
  Stage stage;
  const Tensor x = stage.inputs()[0];
  for (int i = 0; i < 2; ++i) {
    stage.send(sin(x), "h");
    stage.receive("g");
  }
  repeat("layers", 3, {x}, {}, [&](Tensor, std::vector<Tensor> carries, auto) {
    stage.send(carries[0], "carry");
    return RepeatBody{{cos(carries[0])}, {}};
  });
  const Graph simple = dce(cse(dce(stage.graph())));
  REQUIRE(names_of(simple) == Names{"sin", "send h", "receive g", "send h", "receive g", "repeat"});
  REQUIRE(names_of(*simple.nodes().back().bodies[0]) == Names{"send carry", "cos"});
}

TEST_CASE("A collective with stages that need its result stays where it is not read") {
  Stage stage;
  stage.all_reduce(stage.inputs()[0], "stage", Phase::kForward);
  stage.all_reduce(stage.inputs()[0], "data", Phase::kForward);
  REQUIRE(dce(stage.graph()).nodes().empty());
  stage.send(stage.inputs()[0], "h");
  REQUIRE(names_of(dce(stage.graph())) == Names{"all_reduce", "send h"});
}

TEST_CASE("Updates that communicate with other stages keep their order") {
  Stage stage({kRows, kRows});
  const Tensor first = sin(exp(stage.inputs()[0])), second = cos(exp(stage.inputs()[1]));
  const Tensor b = stage.all_reduce(second, "stage", Phase::kUpdate);
  const Tensor a = stage.all_reduce(first, "stage", Phase::kUpdate);
  output("a", a);
  output("b", tanh(b));
  // The first update whose operand is there runs at once, unless other stages take part.
  const Names local{"exp", "sin", "all_reduce", "exp", "cos", "all_reduce", "tanh"};
  REQUIRE(names_of(schedule(stage.graph())) == local);
  stage.send(first, "h");
  const Graph scheduled = schedule(stage.graph());
  REQUIRE(names_of(scheduled) ==
          Names{"exp", "sin", "exp", "cos", "all_reduce", "all_reduce", "tanh", "send h"});
  REQUIRE(scheduled.node(NodeId(4)).inputs == scheduled.node(NodeId(3)).outputs);
}

FlatProgram overlapped(Graph graph) {
  FlatProgram program = flatten(std::make_shared<const Graph>(std::move(graph)), {});
  overlap(program);
  return program;
}

// "start send h", "wait receive g", "sin".
Names launches_of(const FlatProgram& program) {
  Names names;
  for (const FlatLaunch& launch : program.launches) {
    const std::string name = name_of(launch.graph->node(launch.node));
    names.push_back((launch.kind == LaunchKind::kStart  ? "start "
                     : launch.kind == LaunchKind::kWait ? "wait "
                                                        : "") +
                    name);
  }
  return names;
}

TEST_CASE("A send starts when its value is computed, a receive where the schedule has it") {
  Stage stage;
  const Tensor h = sin(exp(stage.inputs()[0]));
  const Tensor more = tanh(cos(h));
  stage.send(h, "h");
  const Tensor g = stage.receive("g");
  const Tensor local = exp(more);
  output("y", local + g);
  REQUIRE(launches_of(overlapped(stage.graph())) == Names{"exp", "sin", "start send h", "cos",
                                                          "tanh", "start receive g", "exp",
                                                          "wait send h", "wait receive g", "add"});
}

TEST_CASE("Collectives pass transfers, except those in which other stages take part") {
  for (const std::string axis : {"data", "stage"}) {
    Stage stage;
    const Tensor h = sin(exp(stage.inputs()[0]));
    const Tensor g = stage.receive("g");
    stage.send(cos(g), "h");
    output("y", stage.all_reduce(h, axis, Phase::kForward));
    const Names names = launches_of(overlapped(stage.graph()));
    const auto at = [&](const char* name) { return std::ranges::find(names, name); };
    REQUIRE((at("start all_reduce") < at("start receive g")) == (axis == "data"));
    REQUIRE((at("start all_reduce") < at("start send h")) == (axis == "data"));
  }
}

TEST_CASE("The values that one task sends may be under way, and keep their memory until then") {
  Stage stage;
  Tensor x = stage.inputs()[0];
  for (const std::string task : {"0", "1", "2"}) {
    x = sin(exp(x));
    const Tensor other = cos(x);
    stage.send(x, "a" + task);
    stage.send(other, "b" + task);
  }
  output("y", exp(x));
  const FlatProgram program = overlapped(stage.graph());
  size_t under_way = 0, most = 0;
  for (const FlatLaunch& launch : program.launches) {
    if (launch.kind == LaunchKind::kStart) ++under_way;
    if (launch.kind == LaunchKind::kWait) {
      --under_way;
      REQUIRE(launch.inputs[0].buffer == program.launches[launch.waits_for].inputs[0].buffer);
    }
    most = std::max(most, under_way);
  }
  REQUIRE(most == 2);
  REQUIRE(under_way == 0);
}

TEST_CASE("Receives may be under way without a bound: their memory is in use in any case") {
  Stage stage;
  const Tensor x = exp(stage.inputs()[0]);
  std::vector<Tensor> received;
  for (const std::string task : {"0", "1", "2", "3"}) received.push_back(stage.receive(task));
  Tensor sum = sin(x);
  for (const Tensor& each : received) sum = sum + each;
  output("y", sum);
  const Names names = launches_of(overlapped(stage.graph()));
  REQUIRE(Names(names.begin(), names.begin() + 6) == Names{"exp", "start receive 0",
                                                           "start receive 1", "start receive 2",
                                                           "start receive 3", "sin"});
}

TEST_CASE("Bytes of a transfer count at its sender") {
  Stage stage;
  const Tensor h = sin(stage.inputs()[0]).named("h");
  stage.send(h, "h");
  const Tensor g = stage.receive("g");
  output("y", g);
  const std::vector<CollectiveUse> uses = collectives(stage.graph());
  REQUIRE(uses.size() == 1);
  REQUIRE((uses[0].op == "send" && uses[0].value == "h" && uses[0].mesh_axes == Names{"stage"}));
  REQUIRE(bytes_per_step(uses) == kBytes);
  REQUIRE(node_flops(stage.graph(), stage.graph().node(NodeId(1))) == 0.0);
}

}  // namespace
}  // namespace tessera
