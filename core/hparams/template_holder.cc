// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/template_holder.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/resolve.h"

namespace tessera {
namespace {

struct Registered {
  std::string hparams;  // typeid's name, equal in every shared library.
  TemplateFactory factory;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, Registered, std::less<>>, std::less<>> by_base;
  std::vector<std::string> clashes;
};

// Never destroyed: plugins may register while others are being unloaded at exit.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

std::string readable(const std::type_info& type) {
  int status = 0;
  char* name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type.name();
  std::free(name);
  const std::string_view ours = "tessera::";
  return text.starts_with(ours) ? text.substr(ours.size()) : text;
}

std::string place(const TreeReader& reader) {
  return reader.path.empty() ? "" : reader.path + ": ";
}

std::unique_ptr<TemplateHolder> make_holder(const TreeReader& reader, const std::type_info& base,
                                            std::string_view name) {
  {
    const std::lock_guard lock(registry().mutex);
    const auto family = registry().by_base.find(base.name());
    if (family != registry().by_base.end()) {
      const auto entry = family->second.find(name);
      if (entry != family->second.end()) return entry->second.factory();
    }
  }
  const std::vector<std::string> names = template_names(base);
  const std::string near = did_you_mean(name, names);
  fail("{}no {} is called '{}'{}", place(reader), readable(base), name,
       near.empty() ? fmt::format("; expected one of {}", fmt::join(names, ", ")) : near);
}

// What was set in the old template and means the same in the new one stays when one is exchanged
// for another by name.
void keep_common_fields(const Tree& old, TemplateHolder& fresh) {
  const Tree defaults = fresh.to_tree();
  Tree kept = Tree::table(fresh.name());
  for (size_t i = 0; i < old.items.size(); ++i) {
    const Tree& item = old.items[i];
    const Tree* same = defaults.find(old.keys[i]);
    if (item.is_default || !item.is_set() || same == nullptr || same->role != item.role) continue;
    const bool same_type =
        item.type != nullptr || same->type != nullptr
            ? item.type != nullptr && same->type != nullptr && *item.type == *same->type
            : item.kind == same->kind && item.role == Tree::Role::kPlain;
    if (same_type) kept.add(old.keys[i], item);
  }
  fresh.read(TreeReader{kept, ""});
}

std::unique_ptr<TemplateHolder> swap_by_name(const TreeReader& reader, std::string_view name,
                                             const TemplateHolder* current,
                                             const std::type_info& base) {
  if (current != nullptr && current->name() == name) return current->clone();
  std::unique_ptr<TemplateHolder> fresh = make_holder(reader, base, name);
  if (current != nullptr) keep_common_fields(current->to_tree(), *fresh);
  return fresh;
}

// A table that names its class in `type`, or has its own class's name from to_tree.
std::unique_ptr<TemplateHolder> read_table(const TreeReader& reader, const TemplateHolder* current,
                                           const std::type_info& base) {
  Tree table = reader.to_table();
  std::string name = table.class_name;
  if (const Tree* type = table.find("type")) {
    name = TreeReader{*type, join_path(reader.path, "type")}.to_string();
    const auto at = table.keys.begin() + (type - table.items.data());
    table.items.erase(table.items.begin() + (at - table.keys.begin()));
    table.keys.erase(at);
  }
  if (name.empty() && current == nullptr)
    fail("{}expected a `type`, one of {}", place(reader), fmt::join(template_names(base), ", "));
  const bool same = current != nullptr && (name.empty() || name == current->name());
  std::unique_ptr<TemplateHolder> holder =
      same ? current->clone() : make_holder(reader, base, name);
  holder->read(TreeReader{table, reader.path});
  return holder;
}

}  // namespace

void register_template(const std::type_info& base, std::string_view name,
                       const std::type_info& hparams, TemplateFactory factory) {
  const std::lock_guard lock(registry().mutex);
  const auto [at, is_new] = registry().by_base[base.name()].try_emplace(
      std::string(name), Registered{hparams.name(), factory});
  if (!is_new)
    registry().clashes.push_back(
        fmt::format("two classes are registered as {} '{}'", readable(base), name));
}

std::vector<std::string> template_clashes() {
  const std::lock_guard lock(registry().mutex);
  return registry().clashes;
}

std::vector<std::string> template_names(const std::type_info& base) {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  const auto family = registry().by_base.find(base.name());
  if (family != registry().by_base.end())
    for (const auto& [name, entry] : family->second) names.push_back(name);
  return names;
}

void* held_as(TemplateHolder* holder, const std::type_info& wanted, std::string_view wanted_name) {
  if (holder == nullptr) fail("the template is unset, not {}", wanted_name);
  if (holder->type() != wanted) fail("the template holds {}, not {}", holder->name(), wanted_name);
  return holder->hparams();
}

std::unique_ptr<TemplateHolder> ready_to_construct(const TemplateHolder* holder,
                                                   const std::type_info& base) {
  if (holder == nullptr)
    fail("the template of some {} is unset; give it one of {}", readable(base),
         fmt::join(template_names(base), ", "));
  const Tree tree = resolved(holder->to_tree());
  check_required(tree, holder->name());
  std::unique_ptr<TemplateHolder> ready = holder->clone();
  ready->read(TreeReader{tree, ""});
  return ready;
}

Tree holder_tree(const TemplateHolder* holder, const Provenance& provenance) {
  Tree tree;
  if (holder != nullptr) {
    tree = holder->to_tree();
    tree.class_name = holder->name();
    tree.provenance = provenance;
  }
  tree.is_template = true;
  return tree;
}

std::unique_ptr<TemplateHolder> read_holder(const TreeReader& reader, const TemplateHolder* current,
                                            const std::type_info& base) {
  const Tree& tree = reader.tree;
  if (reader.unsets()) return nullptr;
  const bool is_name = (tree.kind == Tree::Kind::kText || tree.kind == Tree::Kind::kString) &&
                       tree.text.find_first_of("{=") == std::string::npos;
  if (is_name) return swap_by_name(reader, reader.to_string(), current, base);
  return read_table(reader, current, base);
}

}  // namespace tessera
