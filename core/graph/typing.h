// SPDX-License-Identifier: Apache-2.0
// What type rules are made of: the refusals and layout arithmetic that ops share (docs/graph.md has
// the table). Each function refuses with an Error in the user's terms: the op, the operands' names,
// the mesh axis, and the call that mends it. Not a type rule itself.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"

namespace tessera {

// Throws "<op>: <message>".
[[noreturn]] void refuse(const InferContext& context, std::string_view message);

// "place(y)", or "place it" where the value has no name.
std::string place_hint(std::string_view name);
// The same of operand `i`, which is partial. If another file's line left it so, that is the line to
// change: "place the result of einsum at ffn.cc:31".
std::string place_hint(const InferContext& context, size_t i);

// "mdl", "data, mdl".
std::string mesh_text(const std::vector<std::string>& mesh_axes);

// The union of mesh axes, in mesh order.
std::vector<std::string> mesh_union(const Mesh& mesh, const std::vector<std::string>& a,
                                    const std::vector<std::string>& b);

// Whether any axis of `type` is split over `mesh_axis`.
bool split_over(const Type& type, std::string_view mesh_axis);

// No operand may be a partial maximum: only reshard takes one.
void refuse_maximum(const InferContext& context);

// The op is not linear in operand `i`.
void refuse_partial(const InferContext& context, size_t i);
void refuse_partial(const InferContext& context);  // In any operand; maxima too.

// Linear in these operands together (sums, selections): all have one partial, which is the
// result's.
Partial partial_of_sum(const InferContext& context, std::initializer_list<size_t> operands);

// Linear in each operand alone (products): per mesh axis at most one is partial, and the others are
// then neither partial nor split. Returns the union.
Partial partial_of_product(const InferContext& context);

// A name in operands `a` and `b` needs one size and one ordered split.
void check_agreement(const InferContext& context, size_t a, size_t b);

// The axes of an elementwise result: those of the operand that has them all, else the first one's
// and then each other's own. Checks agreement, and that no mesh axis is used twice.
std::vector<Axis> aligned_axes(const InferContext& context);

// No mesh axis may serve two axes of the result, or an axis and its partial.
void check_mesh_axes_once(const InferContext& context, const Type& result);

// All operands have one dtype.
void check_same_dtype(const InferContext& context);
void check_floating(const InferContext& context);
void check_numeric(const InferContext& context);  // No operand is bool.
void check_dtype(const InferContext& context, size_t i, DType dtype);

// Operand `i` has the axis; the Error names the axes there are.
const Axis& axis_of(const InferContext& context, size_t i, std::string_view name);

// The axis is there and unsplit.
const Axis& unsplit_axis_of(const InferContext& context, size_t i, std::string_view name);

}  // namespace tessera
