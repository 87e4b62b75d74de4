// SPDX-License-Identifier: Apache-2.0
#include "core/graph/op.h"

#include <map>

#include "core/base/error.h"

namespace tessera {
namespace {

// Registry in a function, so that it exists before the first op of any file.
std::map<std::string_view, const OpDef*>& registry() {
  static std::map<std::string_view, const OpDef*> ops;
  return ops;
}

}  // namespace

Op::Op(const OpDef& definition) : OpDef(definition) {
  CHECK(infer != nullptr, "op {} has no type rule", name);
  const bool added = registry().emplace(name, this).second;
  CHECK(added, "op {} is registered twice", name);
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
