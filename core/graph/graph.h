// SPDX-License-Identifier: Apache-2.0
// The graph: typed values, nodes in topological order, named inputs and outputs. Plain data that
// passes read and rebuild. trace.h builds it; core/runtime runs the result of the passes. Tensor is
// a handle to one of its values.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/graph/type.h"

namespace tessera {

struct OpDef;
class Graph;

using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using RematBlockId = Id<struct RematBlockTag>;

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>, Type, DType>;

// The name of an attribute, declared once, and the type of its values.
template <typename T>
struct AttributeName {
  // What holds a T: a number if it is a bool, a count or an enum but DType.
  using Stored =
      std::conditional_t<std::is_integral_v<T> || (std::is_enum_v<T> && !std::is_same_v<T, DType>),
                         int64_t, T>;
  using Given = std::conditional_t<std::is_same_v<T, std::string>, std::string_view, T>;
  using Got = std::conditional_t<std::is_same_v<T, Stored>, const T&, T>;

  std::string_view text;
};

// The static parameters of a node: a small ordered map of printable values.
class Attributes {
 public:
  // Made of an AttributeName; generic code copies those of other nodes.
  struct Entry {
    template <typename T>
    Entry(AttributeName<T> key, typename AttributeName<T>::Given given)
        : name(key.text), value(static_cast<typename AttributeName<T>::Stored>(std::move(given))) {}
    bool operator==(const Entry&) const = default;

    std::string name;
    Attribute value;
  };

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) : entries_(entries) {}

  bool has(const auto& name) const { return find(name.text) != nullptr; }
  template <typename T>
  void set(AttributeName<T> name, typename AttributeName<T>::Given value) {
    set(Entry(name, std::move(value)));
  }
  void set(Entry entry);

  // CHECKs that the attribute exists and has this kind; get_or() returns `otherwise` if absent.
  template <typename T>
  typename AttributeName<T>::Got get(AttributeName<T> name) const {
    const auto* value = std::get_if<typename AttributeName<T>::Stored>(find(name.text));
    CHECK(value != nullptr, "no attribute '{}' of this kind", name.text);
    return static_cast<typename AttributeName<T>::Got>(*value);
  }
  template <typename T>
  T get_or(AttributeName<T> name, std::type_identity_t<T> otherwise) const {
    return has(name) ? get(name) : otherwise;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  std::string text() const;  // "axis=seq scale=0.5"
  void append_to(std::string& text) const;
  bool operator==(const Attributes&) const = default;

 private:
  const Attribute* find(std::string_view name) const;
  std::vector<Entry> entries_;  // In the order in which they were set.
};

// Names that several families of ops have; those of one family are in its file in core/ops.
namespace key {
inline constexpr AttributeName<std::string> kAxis{"axis"}, kK{"k"};  // k replaces axis in top_k.
inline constexpr AttributeName<int64_t> kSize{"size"};  // A new axis: kAxis, kSize and kSplit.
inline constexpr AttributeName<std::vector<std::string>> kSplit{"split"}, kOrder{"order"};
inline constexpr AttributeName<Type> kType{"type"};  // The result's.
inline constexpr AttributeName<DType> kDtype{"dtype"};
inline constexpr AttributeName<double> kValue{"value"}, kEpsilon{"epsilon"};
// The iterations of a loop or a pipeline, and its operands of two roles (core/ops/repeat.h).
inline constexpr AttributeName<int64_t> kCount{"count"};
inline constexpr AttributeName<size_t> kCarries{"carries"}, kStacked{"stacked"};
// The key of random numbers: seed and layer path; the number of the first element, or iteration.
inline constexpr AttributeName<uint64_t> kSeed{"seed"};
inline constexpr AttributeName<std::string> kStream{"stream"};
inline constexpr AttributeName<int64_t> kFirst{"first"};
// A collective's mesh axes; the numbers of its devices, in the order of Mesh::group, and this
// device's place among them; the devices from and to which it sends.
inline constexpr AttributeName<std::vector<std::string>> kMeshAxes{"mesh_axes"};
inline constexpr AttributeName<std::vector<int64_t>> kGroup{"group"};
inline constexpr AttributeName<int64_t> kIndex{"index"}, kFrom{"from"}, kTo{"to"};
}  // namespace key

enum class Phase { kForward, kBackward, kUpdate };
std::string_view phase_name(Phase phase);  // "forward", …

// The kind of a graph input. Parameters and state persist between steps and may be updated in
// place; batch inputs and scalars are written by the host before each step.
enum class InputKind { kParameter, kState, kBatch, kScalar, kLoop };
inline bool persists(InputKind kind) {
  return kind == InputKind::kParameter || kind == InputKind::kState;
}

// A type that does not change, shared by its copies: passes copy values more often than they make
// new types. Not empty.
class SharedType {
 public:
  SharedType(Type type)  // NOLINT(google-explicit-constructor): a Type is given as one.
      : type_(std::make_shared<const Type>(std::move(type))) {}

  const Type& operator*() const { return *type_; }
  const Type* operator->() const { return type_.get(); }
  bool operator==(const SharedType& other) const {
    return type_ == other.type_ || *type_ == *other.type_;
  }

 private:
  std::shared_ptr<const Type> type_;
};

struct Value {
  SharedType type;
  NodeId producer;    // kNone: a graph input.
  size_t result = 0;  // Position among the producer's outputs.
  std::string name;   // Given by the user: "h", "ffn.up.w"; may be empty.
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;
  std::vector<std::shared_ptr<const Graph>> bodies;  // Graphs of `repeat`, `fused` and the like.
  SourceSite site;                                   // The line of layer code it comes from.
  std::string path;                                  // The layer path: "lm.x_layers[3].ffn".
  Phase phase = Phase::kForward;
  RematBlockId remat_block;  // The rematerialised region of the forward pass it belongs to.
  bool remat_clone =
      false;  // A recomputation in the backward pass: never merged with its original.
};

struct GraphInput {
  std::string name;  // "lm.softmax.w", "batch/ids", "step": unique in the graph.
  InputKind kind = InputKind::kBatch;
  ValueId value;
};

// An update is the next value of a kParameter or kState input and replaces it after the step.
struct GraphOutput {
  std::string name;  // "loss", "grad_norm", or the name of the state it updates.
  ValueId value;
  bool is_update = false;
};

class Graph {
 public:
  ValueId add_input(std::string name, InputKind kind, SharedType type);
  // Adds the inputs of another graph, in order, to one without inputs.
  void copy_inputs(const Graph& from);
  // Appends a node whose inputs exist. `types` are the types of its outputs, which are new.
  NodeId add_node(Node node, const std::vector<SharedType>& types);
  // Appends an output to an existing node (a loop that saves another value).
  ValueId add_result(NodeId node, SharedType type);
  void add_output(std::string name, ValueId value);
  void add_update(std::string input_name, ValueId value);
  // Reorders the inputs; `values` are all of them.
  void order_inputs(const std::vector<ValueId>& values);

  // References to values and nodes stay valid while more are added.
  using Values = IndexedVector<ValueId, Value, std::deque<Value>>;
  using Nodes = IndexedVector<NodeId, Node, std::deque<Node>>;
  const Values& values() const { return values_; }
  const Nodes& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const Value& value(ValueId id) const { return values_[id]; }
  Value& value(ValueId id) { return values_[id]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  Node& node(NodeId id) { return nodes_[id]; }
  const Type& type(ValueId id) const { return *value(id).type; }
  const GraphInput* find_input(std::string_view name) const;  // nullptr if absent.
  const GraphOutput* find_output(std::string_view name) const;

  // Returns the name of a value for messages: its name, else "<op> of <path>".
  std::string describe(ValueId id) const;

 private:
  using Positions = std::unordered_map<std::string, size_t>;  // By name.

  Values values_;
  Nodes nodes_;  // In topological order: the producers of a node's inputs precede it.
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  // Positions of the inputs of copy_inputs(), shared by graphs; input_positions_ has later ones.
  std::shared_ptr<const Positions> copied_input_positions_;
  Positions input_positions_;
  Positions output_positions_;
};

using ValueFlags = IndexedVector<ValueId, bool>;
using NodeFlags = IndexedVector<NodeId, bool>;

// The nodes that read each value, once per operand, in the order of the graph.
class Consumers {
 public:
  explicit Consumers(const Graph& graph);
  std::span<const NodeId> operator[](ValueId value) const {
    const size_t begin = begins_[value.index()];
    return std::span(nodes_).subspan(begin, begins_[value.index() + 1] - begin);
  }

 private:
  std::vector<size_t> begins_;  // Position in `nodes_` of each value's first reader, and the end.
  std::vector<NodeId> nodes_;
};

// A handle to a value of the graph being traced, with which layers compute. Arithmetic operators
// are in core/ops/elementwise.h.
class Tensor {
 public:
  Tensor() = default;  // Invalid: type() and named() are then Errors.
  Tensor(Graph* graph, ValueId id) : graph_(graph), id_(id) {}

  bool valid() const { return graph_ != nullptr; }
  explicit operator bool() const { return valid(); }
  Graph* graph() const { return graph_; }
  ValueId id() const { return id_; }
  const Type& type() const { return valid_graph().type(id_); }
  DType dtype() const { return type().dtype; }
  int64_t size(std::string_view axis) const { return type().axis(axis).size; }
  bool has(std::string_view axis) const { return type().has(axis); }

  // Names the value, for messages and dumps; returns itself.
  const Tensor& named(std::string_view name) const {
    valid_graph().value(id_).name = name;
    return *this;
  }

 private:
  Graph& valid_graph() const { return graph_ != nullptr ? *graph_ : no_graph(); }
  [[noreturn]] static Graph& no_graph();

  Graph* graph_ = nullptr;
  ValueId id_;
};

// An operand and the source line that passed it. Ops take their first operand as an Operand, which
// gives graph nodes and errors their line without macros.
struct Operand {
  Operand(const Tensor& value,  // NOLINT(google-explicit-constructor): on purpose.
          std::source_location where = std::source_location::current())
      : tensor(value), site(SourceSite::current(where)) {}
  Operand(const Tensor& value, SourceSite where) : tensor(value), site(where) {}
  Tensor tensor;
  SourceSite site;
};

}  // namespace tessera
