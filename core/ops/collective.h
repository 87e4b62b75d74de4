// SPDX-License-Identifier: Apache-2.0
// The ops that lowering replaces reshards by, in the graph of one device with its local types.
// Layers never trace them. Collectives communicate; the runtime runs them.
//
// all_gather      x -> x with `axis` k times as long: the group's shards, in its order.
// reduce_scatter  x -> x with `axis` k times shorter: this device's part of the group's sum.
// all_reduce      x -> x: the group's sum or maximum, the same bits on each device.
// all_to_all      x -> x with `split_axis` k times shorter and `concat_axis` k times as long.
// permute         x -> x: the whole shard of another device.
//
// Attributes: mesh_axes (strings), group (device numbers, in the order of Mesh::group), index (this
// device's place in it), reduction ("sum" or "max", of all_reduce); axis, split_axis, concat_axis;
// of permute: to, from (device numbers, its own included).
//
// mask_to_owner    x -> x where attribute `keep` is 1, zeros where it is 0: a replicated value as a
//                 partial sum. Slices and pads of shards are the ops of layout.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

bool is_collective(const Node& node);

// Bytes a device sends in one execution with the best algorithm: (k-1)/k of the whole for a gather
// or a scatter, twice that for an all_reduce, and so on.
int64_t collective_bytes(const Graph& graph, const Node& node);

// Attributes that lowering to several devices adds to ops that need the position of their shard in
// the global array (OpDef::anchor): the global index of the shard's first element along each axis,
// and the global sizes.
inline constexpr std::string_view kOrigin = "origin";
inline constexpr std::string_view kExtent = "extent";

extern const Op kAllGatherOp, kReduceScatterOp, kAllReduceOp, kAllToAllOp, kPermuteOp,
    kMaskToOwnerOp;

}  // namespace tessera
