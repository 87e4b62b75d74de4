// SPDX-License-Identifier: Apache-2.0
// Helpers of op definitions: attribute texts and type rules. Internal to this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

using Tensors = std::vector<Tensor>;
using Types = std::vector<Type>;

// OpDef::flops of an op that only moves or generates values.
double no_flops(const Graph& graph, const Node& node);

// "batch seq embed" from names, and names from such a text. An Error names the operand's line.
std::string joined(const std::vector<std::string>& names);
std::vector<std::string> names_at(const Operand& operand, std::string_view text);

// An elementwise op, and one of them marked as a linear view (OpDef::linear_view).
OpDef elementwise(std::string_view name, decltype(OpDef::infer) infer, decltype(OpDef::vjp) vjp,
                  const ElementFunction& element = {});
OpDef linear_view(OpDef op);
Tensor trace_unary(const OpDef& op, const Operand& x);
Tensor trace_binary(const OpDef& op, const Operand& a, const Operand& b);

// One operand; a partial sum stays partial.
Types infer_linear(const InferContext& context);
// Any number of operands of one dtype, aligned by axis name; none may be partial.
Types infer_nonlinear(const InferContext& context);
Types infer_nonlinear_floating(const InferContext& context);
// Operands (saved, dy), linear in dy: only dy may be partial. For gradients of nonlinear ops.
Types infer_gradient(const InferContext& context);

// The type without one of its axes, in another dtype.
Type without_axis(Type type, std::string_view axis, DType dtype);

// The last axis of operand `i`, which must have this name and be unsplit.
const Axis& unsplit_last_axis_of(const InferContext& context, size_t i, std::string_view name);

// Operand `i` must have these axes: same sizes, splits and order; any dtype.
void check_same_axes(const InferContext& context, size_t i, const std::vector<Axis>& expected);

// The type of a sum over every axis of `summed` but `axis`: partial over the mesh axes that split
// the summed axes.
Type sum_to_axis_type(const InferContext& context, const Type& summed, std::string_view axis,
                      DType dtype);

}  // namespace tessera
