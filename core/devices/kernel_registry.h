// SPDX-License-Identifier: Apache-2.0
// The kernels of a kind of device by op. The file of a kernel registers it:
//   const KernelRegistrar kRegister{kGatherOp, make_kernel<Gather>};
// `Resources` is what all kernels of the kind are made with: a thread pool, a CUDA context.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/devices/device.h"
#include "core/graph/op.h"

namespace tessera {

// Makes the kernel of a node with local types. Resources and graph outlive the kernel; the node
// does not. Error, in terms of the user, for a case that the kernel does not support.
template <typename Resources>
using KernelFactoryOf = std::unique_ptr<Kernel> (*)(const Graph& graph, const Node& node,
                                                    Resources& resources);

template <typename Resources>
class KernelRegistrarOf {
 public:
  using Factory = KernelFactoryOf<Resources>;

  // GPUs of a smaller compute capability (90 for 9.0) run the decomposition of the ops.
  KernelRegistrarOf(std::initializer_list<const OpDef*> ops, Factory factory,
                    int least_capability = 0) {
    for (const OpDef* const op : ops) {
      const bool added = registry().kernels.try_emplace(op, factory, least_capability).second;
      CHECK(added, "two kernels for op '{}' on one kind of device", op->name);
    }
  }
  KernelRegistrarOf(const OpDef& op, Factory factory) : KernelRegistrarOf({&op}, factory) {}
  // Registers a factory for every op of which `serves` is true and that has no kernel of its own.
  KernelRegistrarOf(bool (*serves)(const OpDef& op), Factory factory) {
    registry().families.emplace_back(serves, factory);
  }

  // Returns the factory of an op; null if there is none for this compute capability (CPUs: 0).
  static Factory find(const OpDef& op, int capability) {
    const auto found = registry().kernels.find(&op);
    if (found != registry().kernels.end())
      return capability >= found->second.second ? found->second.first : nullptr;
    for (const auto& [serves, factory] : registry().families)
      if (serves(op)) return factory;
    return nullptr;
  }

 private:
  struct Registry {
    std::map<const OpDef*, std::pair<Factory, int>> kernels;
    std::vector<std::pair<bool (*)(const OpDef& op), Factory>> families;
  };
  // In a function, so that it exists before the first registrar of any file, and never destroyed.
  static Registry& registry() {
    static auto* const instance = new Registry;
    return *instance;
  }
};

}  // namespace tessera
