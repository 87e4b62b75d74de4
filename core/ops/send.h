// SPDX-License-Identifier: Apache-2.0
// Transfers between the stages of a pipeline: one device sends a value, another receives it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// Ops that the pass that divides a graph into stages adds to the graph of one stage with its local
// types. Layers never trace them.
//
// send     x ->    : x goes to the device with the same coordinates except that along the mesh axis
//                 it is at `peer`.
// receive    -> x : the value that the other device sends.
//
// Attributes: mesh_axes (the mesh axis of the stages, alone), peer, slot, and the type of receive.
// Lowering to a device adds group (the two devices, in order of their stages), index, from and to.
//
// A transfer is complete when both devices have run it, so the two run their transfers with each
// other in the same order. The values have the same type on both sides.
extern const Op kSendOp, kReceiveOp;

namespace key {
inline constexpr AttributeName<int64_t> kPeer{"peer"};      // The stage of the other device.
inline constexpr AttributeName<std::string> kSlot{"slot"};  // A name of the value on both sides.
}  // namespace key
Node send_node(ValueId value, std::string_view mesh_axis, int64_t peer, std::string_view slot);
Node receive_node(const Type& type, std::string_view mesh_axis, int64_t peer,
                  std::string_view slot);

bool is_transfer(const Node& node);

// Returns the mesh axes along which the graph sends and receives, in its bodies too. Devices at
// different places along such an axis run different programs, which share only what they
// communicate: all collectives along these axes. Passes keep them, and their order.
std::vector<std::string> transfer_axes(const Graph& graph);
// Returns whether the node is a collective along one of these axes, or has one in a body.
bool communicates_along(const std::vector<std::string>& mesh_axes, const Node& node);

}  // namespace tessera
