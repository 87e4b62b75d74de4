// SPDX-License-Identifier: Apache-2.0
#include "core/graph/trace.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/graph/op.h"
#include "core/graph/typing.h"

namespace tessera {
namespace {

struct Frame {
  Graph* graph = nullptr;
  const Mesh* mesh = nullptr;
  const AxisRules* rules = nullptr;          // The rules in force.
  const AxisRules* general_rules = nullptr;  // The rules of the TraceScope.
  BodyScope* body = nullptr;
  RematBlockId next_remat_block{0};
  std::multimap<ValueId, NodeId> conversions = {};  // Reshards and casts, by operand.
};

thread_local std::deque<Frame> frames;  // A deque: references to frames stay valid.
thread_local TraceState state;

Frame& innermost() {
  if (frames.empty())
    fail(
        "an op is called outside of a trace; ops may be called in fprop and in what it calls, not "
        "in a constructor");
  return frames.back();
}

std::vector<std::string> describe_all(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (const ValueId id : ids) names.push_back(graph.describe(id));
  return names;
}

// Returns `wanted`, with a number appended if the graph already has an input of that name.
std::string unused_input_name(const Graph& graph, const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; graph.find_input(name) != nullptr; ++i) name = fmt::format("{}#{}", wanted, i);
  return name;
}

// Returns the result of an equal reshard or cast in the same remat region, or an invalid Tensor.
// Sharing it sums the cotangents of all readers before they are reduced over the mesh: the gradient
// of a tied embedding table is reduce-scattered once.
Tensor converted_before(const OpDef& op, const Tensor& from, const Attributes& attributes) {
  const Frame& frame = innermost();
  const RematBlockId block = state.phase == Phase::kForward ? state.remat_block : RematBlockId();
  const auto [begin, end] = frame.conversions.equal_range(from.id());
  for (auto each = begin; each != end; ++each) {
    const Node& node = frame.graph->node(each->second);
    if (node.op == &op && node.attributes == attributes && node.phase == state.phase &&
        node.remat_block == block)
      return {frame.graph, node.outputs.front()};
  }
  return {};
}

std::vector<Type> inferred_types(const Frame& frame, const Node& node,
                                 const std::vector<Type>& types,
                                 const std::vector<std::string>& names) {
  const OpDef& op = *node.op;
  std::vector<Type> results = op.infer({op.name, *frame.mesh, types, node.attributes, names,
                                        node.bodies, frame.graph, node.inputs, node.site});
  for (const Type& type : results)
    if (const auto problem = type_problem(type, *frame.mesh)) fail("{}: {}", op.name, *problem);
  return results;
}

// Returns the types of the results of a node with operands of these types. An error names the
// operands and the line. Their texts take as long as all other work, so only an error makes them.
std::vector<Type> inferred_types(const Frame& frame, const Node& node,
                                 const std::vector<Type>& types) {
  try {
    return inferred_types(frame, node, types, std::vector<std::string>(types.size()));
  } catch (const Error&) {
    const ErrorPrefix where(node.site.text());
    return inferred_types(frame, node, types, describe_all(*frame.graph, node.inputs));
  }
}

// An error names the op and its line.
Tensor imported_for(const Node& node, const Tensor& tensor) {
  try {
    return imported(tensor);
  } catch (const Error&) {
    const std::string site = node.site.text();
    const ErrorPrefix where(fmt::format("{}{}{}", site, site.empty() ? "" : ": ", node.op->name));
    return imported(tensor);
  }
}

}  // namespace

TraceScope::TraceScope(Graph& graph, const Mesh& mesh, const AxisRules& rules) {
  frames.push_back({&graph, &mesh, &rules, &rules});
}
TraceScope::~TraceScope() { frames.pop_back(); }

Graph& traced_graph() { return *innermost().graph; }
const Mesh& traced_mesh() { return *innermost().mesh; }
const AxisRules& traced_rules() { return *innermost().rules; }
TraceState& trace_state() { return state; }

PathScope::PathScope(std::string_view name)
    : context_(state.path.empty() ? std::string(name) : fmt::format(".{}", name)),
      path_(state.path,
            state.path.empty() ? std::string(name) : fmt::format("{}.{}", state.path, name)) {}

const std::string& traced_path() { return state.path; }

RematScope::RematScope() : block_(state.remat_block, state.remat_block) {
  if (state.remat_block != kNone) return;
  RematBlockId& next = innermost().next_remat_block;
  state.remat_block = std::exchange(next, next.next());
}

ServeScope::ServeScope(const Node& node)
    : site_(state.served, node.site), path_(state.path, node.path), context_(node.path) {}

SiteScope::SiteScope(SourceSite site)
    : site_(state.served, state.served.known() ? state.served : site) {}

RulesScope::RulesScope(const AxisRules& own)
    : rules_{overlay_rules(own.weights, innermost().general_rules->weights),
             overlay_rules(own.activations, innermost().general_rules->activations)},
      in_force_(innermost().rules, own == AxisRules{} ? innermost().general_rules : &rules_) {}

BodyScope::BodyScope(Graph& body, std::string axis, int64_t count)
    : body_(body),
      axis_(std::move(axis)),
      count_(count),
      index_(body.add_input("index", InputKind::kLoop, make_type(DType::kI32, {}))),
      remat_block_(state.remat_block, kNone) {
  Frame frame = innermost();
  frame.graph = &body;
  frame.body = this;
  frame.next_remat_block = RematBlockId(0);
  frame.conversions.clear();
  frames.push_back(frame);
}

BodyScope::~BodyScope() { frames.pop_back(); }

Tensor BodyScope::index() const { return {&body_, index_}; }

Tensor BodyScope::capture(const Tensor& outer, Type type, std::vector<Capture>& captures) {
  for (const Capture& known : captures)
    if (known.outer.graph() == outer.graph() && known.outer.id() == outer.id())
      return {&body_, known.inner};
  const std::string wanted = outer.graph()->describe(outer.id());
  const ValueId inner =
      body_.add_input(unused_input_name(body_, wanted), InputKind::kLoop, std::move(type));
  body_.value(inner).name = wanted;
  captures.push_back({outer, inner});
  return {&body_, inner};
}

Tensor BodyScope::constant(const Tensor& outer) { return capture(outer, outer.type(), constants_); }

Tensor BodyScope::slice(const Tensor& outer) {
  Type type = outer.type();
  if (type.axes.empty() || type.axes.front().name != axis_ || type.axes.front().size != count_)
    fail("repeat: {} is {}, expected a leading axis {}={}", outer.graph()->describe(outer.id()),
         type.text_sized(), axis_, count_);
  if (!type.axes.front().split.empty())
    fail("repeat: {} of {} is split; the axis of a loop must not be split",
         type.axes.front().text(), outer.graph()->describe(outer.id()));
  type.axes.erase(type.axes.begin());
  return capture(outer, std::move(type), slices_);
}

void BodyScope::finish() {
  std::vector<ValueId> order;
  const auto captured = [](const std::vector<Capture>& captures, ValueId id) {
    return std::ranges::any_of(captures,
                               [&](const Capture& capture) { return capture.inner == id; });
  };
  for (const GraphInput& input : body_.inputs()) {
    if (captured(slices_, input.value) || captured(constants_, input.value)) continue;
    order.push_back(input.value);
  }
  for (const Capture& capture : slices_) order.push_back(capture.inner);
  for (const Capture& capture : constants_) order.push_back(capture.inner);
  body_.order_inputs(order);
}

BodyScope* innermost_body() {
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
    if (frame->body != nullptr) return frame->body;
  return nullptr;
}

Tensor imported(const Tensor& tensor) {
  tensor.type();  // Error if it is invalid.
  size_t depth = frames.size();
  while (depth > 0 && frames[depth - 1].graph != tensor.graph()) --depth;
  if (depth == 0)
    fail("a Tensor of another trace is used, which has ended; a layer may not keep a Tensor");
  Tensor seen = tensor;
  for (; depth < frames.size(); ++depth) {
    if (frames[depth].body == nullptr)
      fail("a Tensor of another graph is used; a layer may not keep a Tensor");
    seen = frames[depth].body->constant(seen);
  }
  return seen;
}

std::vector<Tensor> trace_node(const OpDef& op, const std::vector<Tensor>& inputs,
                               Attributes attributes, SourceSite site,
                               std::vector<std::shared_ptr<const Graph>> bodies) {
  const Frame& frame = innermost();
  Node node{.op = &op,
            .attributes = std::move(attributes),
            .bodies = std::move(bodies),
            .site = state.served.known() ? state.served : site,
            .path = state.path,
            .phase = state.phase,
            .remat_block = state.phase == Phase::kForward ? state.remat_block : RematBlockId()};
  std::vector<Type> types;
  for (const Tensor& tensor : inputs) {
    const Tensor local = imported_for(node, tensor);
    node.inputs.push_back(local.id());
    types.push_back(local.type());
  }
  std::vector<Type> results = inferred_types(frame, node, types);
  const NodeId id = frame.graph->add_node(
      std::move(node), {std::move_iterator(results.begin()), std::move_iterator(results.end())});
  std::vector<Tensor> outputs;
  for (const ValueId value : frame.graph->node(id).outputs) outputs.push_back({frame.graph, value});
  return outputs;
}

// Equal reshards and casts of a value in a remat region are traced once.
Tensor trace_op(const OpDef& op, std::vector<Tensor> inputs, Attributes attributes,
                SourceSite site) {
  if (!op.conversion || !inputs.front().valid())
    return trace_node(op, inputs, std::move(attributes), site).front();
  const Tensor from = imported(inputs.front());
  if (const Tensor same = converted_before(op, from, attributes)) return same;
  const Tensor result = trace_node(op, {from}, std::move(attributes), site).front();
  innermost().conversions.emplace(from.id(), result.graph()->value(result.id()).producer);
  return result;
}

Tensor trace_unary(const OpDef& op, const Operand& x, Attributes attributes) {
  return trace_op(op, {x.tensor}, std::move(attributes), x.site);
}

Tensor trace_binary(const OpDef& op, const Operand& a, const Operand& b) {
  return trace_op(op, {a.tensor, b.tensor}, {}, a.site);
}

Tensor input(std::string name, InputKind kind, Type type) {
  if (const auto problem = type_problem(type, traced_mesh())) fail("{}: {}", name, *problem);
  Graph& graph = traced_graph();
  return {&graph, graph.add_input(std::move(name), kind, std::move(type))};
}

void output(std::string name, const Tensor& value) {
  const Tensor local = imported(value);
  const Partial& partial = local.type().partial;
  if (partial)
    fail("{} is fetched but partial over {}; {}", name, mesh_text(partial.mesh_axes),
         place_hint(name));
  traced_graph().add_output(std::move(name), local.id());
}

}  // namespace tessera
