// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/registry.h"

#include <map>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

// Registries in functions, so that they exist before the first registrar of any file.
std::map<const OpDef*, KernelFactory>& kernels() {
  static std::map<const OpDef*, KernelFactory> map;
  return map;
}
using Family = std::pair<bool (*)(const OpDef& op), KernelFactory>;
std::vector<Family>& families() {
  static std::vector<Family> list;
  return list;
}

}  // namespace

KernelRegistrar::KernelRegistrar(const OpDef& op, KernelFactory factory) {
  const bool added = kernels().emplace(&op, factory).second;
  CHECK(added, "two CPU kernels for op '{}'", op.name);
}

KernelRegistrar::KernelRegistrar(std::initializer_list<const OpDef*> ops, KernelFactory factory) {
  for (const OpDef* op : ops) KernelRegistrar(*op, factory);
}

KernelRegistrar::KernelRegistrar(bool (*serves)(const OpDef& op), KernelFactory factory) {
  families().push_back({serves, factory});
}

DType vector_dtype(const Graph& graph, const Node& node, size_t i) {
  const DType dtype = graph.type(node.inputs[i]).dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    fail("{}: the CPU backend computes {} in f32 and bf16, not in {}; cast {}", node.site.text(),
         node.op->name, dtype_name(dtype), graph.describe(node.inputs[i]));
  }
  return dtype;
}

KernelFactory find_kernel(const OpDef& op) {
  const auto found = kernels().find(&op);
  if (found != kernels().end()) return found->second;
  for (const auto& [serves, factory] : families())
    if (serves(op)) return factory;
  return nullptr;
}

}  // namespace tessera
