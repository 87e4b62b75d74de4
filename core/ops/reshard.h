// SPDX-License-Identifier: Apache-2.0
// Conversions that keep the values: cast changes the dtype, reshard the layout on the mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {

// x rounded to a dtype. A partial sum would be rounded before it is summed: an Error unless asked
// for with kThrough.
enum class CastPartial { kRefuse, kThrough };
Tensor cast(Operand x, DType dtype, CastPartial partial = CastPartial::kRefuse);

// Casts x to `dtype`; returns x itself if it has it already.
Tensor as_dtype(const Tensor& x, DType dtype);
// Returns the dtype of arithmetic and statistics inside composite ops: f32; f64 for f64.
DType wide_dtype(DType dtype);
Tensor widened(const Tensor& x);

// Cast in gradients, through partial sums: round x to the dtype of its primal and mark this as a
// rounding that nobody requested; and cast x to a dtype, where such a rounding is removed.
Tensor gradient_cast(const Tensor& x, DType dtype);
Tensor widened_gradient(const Tensor& x, DType dtype);

// Casts a weight to the dtype of its use. Its gradient is summed across devices in `reduce`, both
// where the weight was gathered and where it was cast.
Tensor cast_weight(Operand x, DType dtype, DType reduce);

// While it lives, gradients of cast_weight stay pending sums over these mesh axes, in the weight's
// dtype: the code that opens it reduces them later.
using PendingGradientScope = ScopedTraceState<&TraceState::pending_mesh_axes>;

// Changes the layout of x: "batch/data seq embed/mdl", axes in x's order, or "… + sum(mdl)". The
// only op of layers that communicates; on global arrays it is the identity.
Tensor reshard(Operand x, std::string_view layout);
Tensor reshard(Operand x, const Type& type);
// Makes zeros of any type, a partial sum included.
Tensor zeros(const Type& type);
// Computes the partial sum or maximum of x on all devices; returns x itself if it is not partial.
Tensor reduced(Operand x);
// Replicates x: neither split nor partial.
Tensor replicated(Operand x);
// Gathers `axis` of x on each device; other axes and a partial sum stay.
Tensor whole_along(Operand x, std::string_view axis);
// Puts x in the layout of the activation rules; `role` selects scoped rules ("residual").
Tensor place(Operand x, std::string_view role = "");

// Offers x to the remat policy, under this name, to be saved for the backward pass.
Tensor save_for_backward(Operand x, std::string_view name);

extern const Op kCastOp, kReshardOp, kSaveForBackwardOp;

// The ops that replace reshards in lowered graphs: those of one device with its local types. Layers
// never trace them. Collectives communicate; the runtime runs them. layout.h has slices and pads.
//
// all_gather      x -> x with `axis` k times as long: the group's shards, in its order.
// reduce_scatter  x -> x with `axis` k times shorter: this device's part of the group's sum.
// all_reduce      x -> x: the group's sum or maximum, the same bits on each device.
// all_to_all      x -> x with `split_axis` k times shorter and `concat_axis` k times as long.
// permute         x -> x: the whole shard of another device.
//
// mask_to_owner   x -> x on the owner, else zeros: a replicated value as a partial sum.

bool is_collective(const Node& node);

// Returns the bytes a device sends in one execution with the best algorithm: (k-1)/k of the whole
// for a gather or a scatter, twice that for an all_reduce, and so on.
int64_t collective_bytes(const Graph& graph, const Node& node);

namespace key {
inline constexpr AttributeName<DType> kReduce{"reduce"};              // For the sum of cast_weight.
inline constexpr AttributeName<std::string> kName{"name"};            // For save_for_backward.
inline constexpr AttributeName<std::string> kReduction{"reduction"};  // "sum" or "max".
inline constexpr AttributeName<std::string> kSplitAxis{"split_axis"}, kConcatAxis{"concat_axis"};
inline constexpr AttributeName<bool> kIsOwner{"keep"};
// The stages that take part (absent: all); where each device of the group sends a permute.
inline constexpr AttributeName<std::vector<int64_t>> kStages{"stages"}, kRoutes{"routes"};
// Lowering to several devices adds these to ops that need the position of their shard in the global
// array (OpDef::anchor): the type of that array, and then the global index of the shard's first
// element along each axis, and the global sizes.
inline constexpr AttributeName<Type> kAnchor{"anchor"};
inline constexpr AttributeName<std::vector<int64_t>> kOrigin{"origin"}, kExtent{"extent"};
}  // namespace key
// Returns the global index of the first element along an anchor's axis; 0 if it is not split.
int64_t origin_along(const Attributes& attributes, int64_t axis);

extern const Op kAllGatherOp, kReduceScatterOp, kAllReduceOp, kAllToAllOp, kPermuteOp,
    kMaskToOwnerOp;

}  // namespace tessera
