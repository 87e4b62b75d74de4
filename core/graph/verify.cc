// SPDX-License-Identifier: Apache-2.0
#include "core/graph/verify.h"

#include <set>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/typing.h"

namespace tessera {
namespace {

enum class Level { kWhole, kBody };

class Verifier {
 public:
  Verifier(const Graph& graph, const Mesh& mesh, Level level)
      : graph_(graph), mesh_(mesh), level_(level) {}

  void verify() {
    check_inputs();
    for (const NodeId id : graph_.nodes().ids()) check_node(id);
    check_all_defined();
    check_outputs();
  }

 private:
  bool exists(ValueId id) const { return graph_.values().has(id); }

  void check_type(ValueId id) const {
    if (const auto problem = type_problem(graph_.type(id), mesh_))
      fail("{}: {}", graph_.describe(id), *problem);
  }

  void check_inputs() {
    std::set<std::string> names;
    for (const GraphInput& input : graph_.inputs()) {
      if (!names.insert(input.name).second) fail("two inputs are named '{}'", input.name);
      if (!exists(input.value))
        fail("input '{}' is value {}, which does not exist", input.name, input.value);
      if (graph_.value(input.value).producer != kNone)
        fail("input '{}' is the result of a node", input.name);
      if (!defined_.insert(input.value).second)
        fail("input '{}' has the same value as another input", input.name);
      check_type(input.value);
    }
  }

  void check_node(NodeId id) {
    const Node& node = graph_.node(id);
    const ErrorContext where(node.path.empty() ? std::string(node.op->name) : node.path);
    const ErrorPrefix line(node.site.text());
    std::vector<Type> types;
    std::vector<std::string> names;
    for (const ValueId input : node.inputs) {
      if (!exists(input)) fail("{} reads value {}, which does not exist", node.op->name, input);
      if (!defined_.contains(input))
        fail("{} reads {} before it is computed", node.op->name, graph_.describe(input));
      types.push_back(graph_.type(input));
      names.push_back(graph_.describe(input));
    }
    for (const auto& body : node.bodies) Verifier(*body, mesh_, Level::kBody).verify();

    const std::vector<Type> inferred =
        node.op->infer({node.op->name, mesh_, types, node.attributes, names, node.bodies});
    if (inferred.size() != node.outputs.size())
      fail("{} has {} outputs, its type rule gives {}", node.op->name, node.outputs.size(),
           inferred.size());
    for (size_t i = 0; i < node.outputs.size(); ++i) check_result(id, i, inferred[i]);
  }

  void check_result(NodeId id, size_t index, const Type& inferred) {
    const Node& node = graph_.node(id);
    const ValueId output = node.outputs[index];
    if (!exists(output)) fail("{} computes value {}, which does not exist", node.op->name, output);
    const Value& value = graph_.value(output);
    if (value.producer != id || value.result != index)
      fail("output {} of {} does not name it as its producer", index, node.op->name);
    if (!defined_.insert(output).second) fail("{} is computed twice", graph_.describe(output));
    check_type(output);
    if (*value.type != inferred)
      fail("output {} of {} is {}, its type rule gives {}", index, node.op->name,
           value.type->text_sized(), inferred.text_sized());
  }

  void check_all_defined() const {
    for (const ValueId id : graph_.values().ids())
      if (!defined_.contains(id)) fail("value {} is neither an input nor a result of a node", id);
  }

  void check_outputs() const {
    std::set<std::string> names;
    for (const GraphOutput& output : graph_.outputs()) {
      if (!names.insert(output.name).second) fail("two outputs are named '{}'", output.name);
      if (!exists(output.value))
        fail("output '{}' is value {}, which does not exist", output.name, output.value);
      const Type& type = graph_.type(output.value);
      if (output.is_update) {
        check_update(output, type);
      } else if (type.partial && level_ == Level::kWhole) {
        fail("{} is fetched but partial over {}; {}", output.name,
             mesh_text(type.partial.mesh_axes), place_hint(output.name));
      }
    }
  }

  void check_update(const GraphOutput& output, const Type& type) const {
    const GraphInput* input = graph_.find_input(output.name);
    if (input == nullptr) fail("'{}' is updated but is not an input", output.name);
    if (!persists(input->kind))
      fail("'{}' is updated but is neither a parameter nor state", output.name);
    if (type != graph_.type(input->value))
      fail("'{}' is {}, its update is {}", output.name, graph_.type(input->value).text_sized(),
           type.text_sized());
  }

  const Graph& graph_;
  const Mesh& mesh_;
  Level level_;
  std::set<ValueId> defined_;
};

}  // namespace

void verify(const Graph& graph, const Mesh& mesh, std::string_view stage) {
  const ErrorContext where(fmt::format("the graph after {}", stage));
  Verifier(graph, mesh, Level::kWhole).verify();
}

}  // namespace tessera
