// SPDX-License-Identifier: Apache-2.0
// The definition of an op: its type rule, its gradient, its decomposition and its cost. Each op has
// one OpDef, in the file of its family under ops/. Kernels live in the backends, by name.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// The input of a type rule. Operand names are for messages: "add: y is a partial sum over mdl, …".
struct InferContext {
  std::string_view op;
  const Mesh& mesh;
  std::span<const Type> inputs;
  const Attributes& attributes;
  std::span<const std::string> names;  // Names of the inputs.
  std::span<const std::shared_ptr<const Graph>> bodies = {};
  // For messages about an operand that another layer made; null where the rule is only checked.
  const Graph* graph = nullptr;
  std::span<const ValueId> values = {};  // The inputs in `graph`.
  SourceSite site = {};                  // The line that applies the op.
};

// The input of a gradient or a decomposition. Tensors are in the graph being traced.
struct VjpContext {
  const Node& node;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  // One per output, in the layout that the cotangent rule requires; an invalid Tensor where the
  // output does not reach the loss.
  std::span<const Tensor> cotangents;
};

// Elementwise ops have one iteration space and may be fused. Views move no data on a device. A
// reshard changes the layout only; lowering replaces it by collectives (ops/reshard.h). A loop
// runs its body repeatedly (ops/repeat.h).
enum class OpClass {
  kElementwise,
  kReduction,
  kContraction,
  kDataMovement,
  kView,
  kGenerator,
  kReshard,
  kCollective,
  kLoop,
  kOther
};

// The tensor of an op whose position in the global array the op needs (iota, gather, dropout).
enum class ShardAnchor { kNone, kResult, kFirstOperand };

// The values that an operand of a scalar function takes; kAbsent: there is no such operand.
enum class Domain { kAbsent, kReal, kPositive, kBool };

// An elementwise op as a function of one element of each operand. The reference interpreter runs
// it, the CPU backend too where it has no vector code for the op, and test cases follow from it.
struct ElementFunction {
  std::array<Domain, 3> operands = {};
  double (*apply)(const double* x) = nullptr;  // x[i] is operand i; bools are 0 and 1.
  double cost = 1.0;                           // Time on vectors, in units of an addition.
};

struct OpDef {
  std::string_view name;
  OpClass op_class = OpClass::kOther;

  // Infers output types from input types; throws Error for types that the typing table rejects.
  std::vector<Type> (*infer)(const InferContext&) = nullptr;

  // Returns cotangents of the inputs (an invalid Tensor: none). Null: no gradient, an Error if one
  // is requested, except for inputs that are not floating. The Error names an alternative.
  std::vector<Tensor> (*vjp)(const VjpContext&) = nullptr;
  std::string_view instead_of_gradient = "stop_gradient its operand";

  // Set for elementwise ops without attributes.
  ElementFunction element = {};

  // For composite ops: computes the same outputs by primitive ops. Tests compare kernels with it,
  // the reference interpreter runs it. Null: a primitive.
  std::vector<Tensor> (*decomposition)(const Node&, std::span<const Tensor> inputs) = nullptr;

  // Returns multiplications and additions of one execution, from the node's types in `graph`; null:
  // one per output element.
  double (*flops)(const Graph& graph, const Node& node) = nullptr;
  // Returns the bytes that one execution reads and writes; null: those of each operand and result.
  double (*bytes)(const Graph& graph, const Node& node) = nullptr;

  // A linear op of one operand through which a cotangent may stay partial (docs/design.md §2).
  bool linear_view = false;
  // Another linear op of one operand: applied to a sum, it is the sum of what it makes of the
  // terms.
  bool linear = false;
  // The result equals the operand, bit for bit, if both have the same dtype. Lowering removes it.
  bool identity = false;
  // Changes the dtype or the layout only. Equal ones of a value in a remat region are traced once.
  bool conversion = false;
  // Autodiff treats the result as a constant.
  bool stops_gradient = false;

  // Fusion: whether it may be part of a fused loop, and whether it is so cheap that each fused loop
  // that reads its result recomputes it.
  bool fusible = op_class == OpClass::kElementwise;
  bool foldable = false;

  // Lowering to one device.
  ShardAnchor anchor = ShardAnchor::kNone;
  // Attributes with an axis of the result and its global size, which becomes the local size.
  std::pair<AttributeName<std::string>, AttributeName<int64_t>> axis_size = {};
};

// An op that registers itself. Ops are constants at namespace scope, declared in the header of
// their family, so that `node.op == &kSliceOp` tests for an op.
struct Op : OpDef {
  explicit Op(const OpDef& definition);
  Op& operator=(Op&&) = delete;  // Neither copied nor moved.
};

const OpDef& find_op(std::string_view name);  // Error with the nearest name.
std::vector<const OpDef*> all_ops();          // Sorted by name.

}  // namespace tessera
