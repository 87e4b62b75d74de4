// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/registry.h"

#include <map>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

struct Family {
  bool (*serves)(const OpDef& op);
  KernelFactory factory;
};

// In functions, so that they exist before the first registrar of any file.
std::map<const OpDef*, KernelFactory>& kernels() {
  static std::map<const OpDef*, KernelFactory> map;
  return map;
}
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

KernelFactory find_kernel(const OpDef& op) {
  const auto found = kernels().find(&op);
  if (found != kernels().end()) return found->second;
  for (const Family& family : families())
    if (family.serves(op)) return family.factory;
  return nullptr;
}

}  // namespace tessera
