// SPDX-License-Identifier: Apache-2.0
// Building blocks of type rules: the checks and layout arithmetic that ops share (docs/graph.md has
// the table). Errors name the op, the operands, the mesh axis and the call that fixes the problem.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/graph/op.h"

namespace tessera {

// Throws "<op>: <message>".
[[noreturn]] void refuse(const InferContext& context, std::string_view message);
template <typename Arg, typename... Args>
[[noreturn]] void refuse(const InferContext& context, fmt::format_string<Arg, Args...> format,
                         Arg&& arg, Args&&... args) {
  refuse(context, fmt::format(format, std::forward<Arg>(arg), std::forward<Args>(args)...));
}

// Returns "place(y)", or "place it" if the name is not an expression.
std::string place_hint(std::string_view name);
// Returns the hint for the partial operand `i`. If it became partial in another source file, that
// line must be changed: "place the result of einsum at ffn.cc:31".
std::string place_hint(const InferContext& context, size_t i);

// Joins names: "mdl", "data, mdl".
std::string mesh_text(const std::vector<std::string>& mesh_axes);

// Returns the union of mesh axes, in mesh order.
std::vector<std::string> mesh_union(const Mesh& mesh, const std::vector<std::string>& a,
                                    const std::vector<std::string>& b);

// Error if an operand is a partial maximum: only reshard accepts one.
void refuse_maximum(const InferContext& context);

// Error if operand `i`, in which the op is not linear, is partial.
void refuse_partial(const InferContext& context, size_t i);
void refuse_partial(const InferContext& context);  // Any operand.

// For ops linear in these operands together (sums, selections): they must have the same partial,
// which is the partial of the result.
Partial partial_of_sum(const InferContext& context, std::initializer_list<size_t> operands);

// For ops linear in each operand alone (products): over each mesh axis at most one operand is
// partial and the others are then neither partial nor split. Returns the union of the partials.
Partial partial_of_product(const InferContext& context);

// Axes that operands `a` and `b` share must have the same size and the same ordered split.
void check_agreement(const InferContext& context, size_t a, size_t b);

// Returns the axes of an elementwise result: those of the operand that has them all; otherwise
// those of the first operand followed by the ones that the others add. Checks agreement, and that
// no mesh axis is used twice.
std::vector<Axis> aligned_axes(const InferContext& context);

// A mesh axis may not split two axes of the result, nor split an axis and be part of the partial.
void check_mesh_axes_once(const InferContext& context, const Type& result);

// All operands must have the same dtype.
void check_same_dtype(const InferContext& context);
void check_floating(const InferContext& context);
void check_numeric(const InferContext& context);  // No bool.
void check_dtype(const InferContext& context, size_t i, DType dtype);

// Returns the axis of operand `i`; Error that lists its axes.
const Axis& axis_of(const InferContext& context, size_t i, std::string_view name);

// Returns the axis of operand `i`, which must not be split.
const Axis& unsplit_axis_of(const InferContext& context, size_t i, std::string_view name);

}  // namespace tessera
