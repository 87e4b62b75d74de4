// SPDX-License-Identifier: Apache-2.0
#include "core/graph/op.h"

#include <map>
#include <string>

#include "core/base/error.h"

namespace tessera {
namespace {

// In a function, so that it exists before the first registrar of any file.
std::map<std::string_view, const OpDef*>& registry() {
  static std::map<std::string_view, const OpDef*> ops;
  return ops;
}

}  // namespace

OpRegistrar::OpRegistrar(const OpDef& op) {
  CHECK(op.infer != nullptr, "op {} has no type rule", op.name);
  const bool added = registry().emplace(op.name, &op).second;
  CHECK(added, "op {} is registered twice", op.name);
}

OpRegistrar::OpRegistrar(std::span<const OpDef> ops) {
  for (const OpDef& op : ops) OpRegistrar one(op);
}

OpRegistrar::OpRegistrar(std::initializer_list<const OpDef*> ops) {
  for (const OpDef* op : ops) OpRegistrar one(*op);
}

const OpDef& find_op(std::string_view name) {
  const auto found = registry().find(name);
  if (found != registry().end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [key, op] : registry()) names.emplace_back(key);
  fail("no op '{}'{}", name, did_you_mean(name, names));
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops;
  for (const auto& [name, op] : registry()) ops.push_back(op);
  return ops;
}

}  // namespace tessera
