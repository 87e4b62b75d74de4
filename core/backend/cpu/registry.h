// SPDX-License-Identifier: Apache-2.0
// Which CPU kernel serves which op. A kernel's file registers it:
//   const KernelRegistrar kRegister{kGatherOp, make_gather};
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>

#include "core/backend/backend.h"
#include "core/backend/cpu/host_kernel.h"
#include "core/backend/cpu/team.h"
#include "core/graph/op.h"

namespace tessera {

// The node's types are local. Team and graph outlive the kernel; the node may be looked at only in
// the factory. Error, in the user's terms, for a case the kernel does not serve.
using KernelFactory = std::unique_ptr<Kernel> (*)(const Graph& graph, const Node& node,
                                                  ThreadTeam& team);

struct KernelRegistrar {
  KernelRegistrar(const OpDef& op, KernelFactory factory);
  KernelRegistrar(std::initializer_list<const OpDef*> ops, KernelFactory factory);
  KernelRegistrar(std::string_view op, KernelFactory factory);
};

// Null if there is none.
KernelFactory find_kernel(std::string_view op);

}  // namespace tessera
