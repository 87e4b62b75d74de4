// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/registry.h"

#include <map>

#include "core/base/error.h"

namespace tessera {
namespace {

std::map<std::string_view, KernelFactory>& kernels() {
  static std::map<std::string_view, KernelFactory> map;
  return map;
}

}  // namespace

KernelRegistrar::KernelRegistrar(std::string_view op, KernelFactory factory) {
  const bool added = kernels().emplace(op, factory).second;
  CHECK(added, "two CPU kernels for op '{}'", op);
}

KernelRegistrar::KernelRegistrar(const OpDef& op, KernelFactory factory)
    : KernelRegistrar(op.name, factory) {}

KernelRegistrar::KernelRegistrar(std::initializer_list<const OpDef*> ops, KernelFactory factory) {
  for (const OpDef* op : ops) KernelRegistrar(*op, factory);
}

KernelFactory find_kernel(std::string_view op) {
  const auto found = kernels().find(op);
  return found == kernels().end() ? nullptr : found->second;
}

}  // namespace tessera
