// SPDX-License-Identifier: Apache-2.0
// Helpers of op definitions: costs, attribute texts, checks and type rules. Internal to this
// folder.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/graph/typing.h"

namespace tessera {

using Tensors = std::vector<Tensor>;
using Types = std::vector<Type>;

// OpDef::flops for an op that only moves or generates values, and for an op with `kEach` operations
// for each element of its first operand.
inline double no_flops(const Graph&, const Node&) { return 0.0; }
template <int kEach>
double flops_per_element(const Graph& graph, const Node& node) {
  return kEach * static_cast<double>(graph.type(node.inputs[0]).elements());
}

// OpDef::bytes for an op that reads as much of its first operand as it returns.
double selected_bytes(const Graph& graph, const Node& node);

// Convert names to "batch seq embed", and such a text to names. An Error names the operand's line.
std::string joined(const std::vector<std::string>& names);
std::vector<std::string> names_at(const Operand& operand, std::string_view text);
inline bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns the names of the axes of `type` that `other` lacks.
std::vector<std::string> names_beside(const Type& type, const Type& other);

// Make an elementwise op, and one that is a linear view (OpDef::linear_view).
OpDef elementwise(std::string_view name, decltype(OpDef::infer) infer, decltype(OpDef::vjp) vjp,
                  const ElementFunction& element = {});
OpDef linear_view(OpDef op);

// A type rule with checks before it: checked<infer_linear, check_numeric>.
template <auto kRule, auto... kChecks>
Types checked(const InferContext& context) {
  (kChecks(context), ...);
  return kRule(context);
}

// Infers the type of the first operand.
inline Types infer_same(const InferContext& context) { return {context.inputs[0]}; }
// Infers the type of one operand; a partial sum stays partial.
constexpr auto infer_linear = checked<infer_same, refuse_maximum>;
// Infers from any number of operands of one dtype, aligned by axis name; none may be partial.
Types infer_nonlinear(const InferContext& context);
constexpr auto infer_nonlinear_floating = checked<infer_nonlinear, check_floating>;
// Infers the types of the results of a body: for a node that a pass makes from several.
Types infer_fused(const InferContext& context);
// Infers from operands (saved, dy), of which only dy may be partial. For gradients of nonlinear
// ops.
Types infer_gradient(const InferContext& context);

// Check operand `i`: its dtype, or that it has the dtype of operand `a`; that it is not partial,
// where `role` names it ("the divisor"); that it lacks the axis; that it has these axes in this
// order ("batch seq"), or these sizes and splits too, of any dtype.
void check_floating_operand(const InferContext& context, size_t i);
void check_dtypes_agree(const InferContext& context, size_t a, size_t i);
void refuse_partial_operand(const InferContext& context, size_t i, std::string_view role);
void refuse_axis(const InferContext& context, size_t i, std::string_view name);
void check_axis_names(const InferContext& context, size_t i, std::string_view names);
void check_same_axes(const InferContext& context, size_t i, const std::vector<Axis>& expected);

// Checks ids, operand `i`: i32 and not partial; and, since the ops are typed like one_hot(ids,
// axis), which cannot use a mesh axis twice, not split over a mesh axis of `axis`.
void check_ids(const InferContext& context, size_t i);
void check_one_hot(const InferContext& context, const Axis& axis, size_t i);

// Returns the partial of a sum along an axis that is split over these mesh axes too.
Partial plus_split(const InferContext& context, Partial partial,
                   const std::vector<std::string>& split);

// Return the axis of attributes kAxis, kSize and kSplit, and these attributes of an axis.
Axis new_axis(const Attributes& attributes);
Attributes axis_attributes(const Axis& axis);

// Returns the type without one of its axes, in another dtype.
Type without_axis(Type type, std::string_view axis, DType dtype);

// Returns the last axis of operand `i`, which must have this name, and be unsplit.
const Axis& last_axis_of(const InferContext& context, size_t i, std::string_view name);
const Axis& unsplit_last_axis_of(const InferContext& context, size_t i, std::string_view name);

// Returns the type of a sum over every axis of `summed` except `axis`: partial over the mesh axes
// that split the summed axes.
Type sum_to_axis_type(const InferContext& context, const Type& summed, std::string_view axis,
                      DType dtype);

}  // namespace tessera
