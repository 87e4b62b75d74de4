// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/template.h"

#include <map>
#include <mutex>

#include <boost/core/demangle.hpp>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"

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

// Never destroyed, because plugins may still use it at exit.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

// Returns nullptr if no class of this base has this name. Classes are never removed.
const Registered* find_registered(const std::type_info& base, std::string_view name) {
  const std::lock_guard lock(registry().mutex);
  const auto family = registry().by_base.find(base.name());
  if (family == registry().by_base.end()) return nullptr;
  const auto entry = family->second.find(name);
  return entry == family->second.end() ? nullptr : &entry->second;
}

std::string readable(const std::type_info& type) {
  const std::string text = boost::core::demangle(type.name());
  const std::string_view ours = "tessera::";
  return text.starts_with(ours) ? text.substr(ours.size()) : text;
}

std::string place(const TreeReader& reader) {
  return reader.path.empty() ? "" : reader.path + ": ";
}

std::unique_ptr<TemplateHolder> make_holder(const TreeReader& reader, const std::type_info& base,
                                            std::string_view name) {
  if (const Registered* found = find_registered(base, name)) return found->factory();
  const std::vector<std::string> names = template_names(base);
  const std::string near = did_you_mean(name, names);
  fail("{}no {} is named '{}'{}", place(reader), readable(base), shortened(name),
       near.empty() ? fmt::format("; expected one of {}", fmt::join(names, ", ")) : near);
}

// Returns "mine::Ffn" from the type of mine::Ffn::HParams. HParams that are no member of their
// class, such as the shape S of Schedule<S>, name it by their member Instance: "mine::S::Instance".
std::string class_of(const std::string& mangled_hparams) {
  const std::string name = boost::core::demangle(mangled_hparams.c_str());
  const std::string_view suffix = "::HParams";
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name + "::Instance";
}

// Returns the error of the class of a set template, or "".
std::string registration_problem(const Tree& tree) {
  const std::string held = class_of(tree.hparams->name());
  const Registered* named = find_registered(*tree.template_base, tree.class_name);
  if (named != nullptr && named->hparams == tree.hparams->name()) return "";
  if (named != nullptr)
    return fmt::format("{} and {} have the same name '{}'; give one of them another kName", held,
                       class_of(named->hparams), tree.class_name);
  return fmt::format(
      "{} is not registered, so its name in hparams.toml and --set would not be known; add to its "
      ".cc file: const tessera::TemplateRegistrar<{}, {}> kRegister;",
      held, boost::core::demangle(tree.template_base->name()), held);
}

void check_registered_at(const Tree& tree, const std::string& path) {
  if (tree.template_base != nullptr) {
    const std::string problem = registration_problem(tree);
    const std::string site = tree.provenance.site.text();
    if (!problem.empty()) fail("{}{}{}: {}", site, site.empty() ? "" : ": ", path, problem);
  }
  for (size_t i = 0; i < tree.items.size(); ++i)
    check_registered_at(tree.items[i], tree.item_path(path, i));
}

// Keeps fields when a template's class is replaced by name: values that were set and that exist in
// the new class with the same type.
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

// Marks all templates within a tree that is resolved and lacks nothing.
void mark_complete(Tree& tree) {
  for (Tree& item : tree.items) {
    item.is_complete = item.is_template;
    mark_complete(item);
  }
}

std::unique_ptr<TemplateHolder> swap_by_name(const TreeReader& reader, std::string_view name,
                                             const TemplateHolder* current,
                                             const std::type_info& base) {
  if (current != nullptr && current->name() == name) return current->clone();
  std::unique_ptr<TemplateHolder> fresh = make_holder(reader, base, name);
  if (current != nullptr) keep_common_fields(current->to_tree(), *fresh);
  return fresh;
}

// Reads a table whose class is named by `type` or, in a tree from to_tree, by class_name.
std::unique_ptr<TemplateHolder> read_table(const TreeReader& reader, const TemplateHolder* current,
                                           const std::type_info& base) {
  Tree table = reader.to_table();
  std::string name = table.class_name;
  if (const Tree* type = table.find("type")) {
    name = TreeReader{*type, join_path(reader.path, "type")}.to_string();
    const auto at = type - table.items.data();
    table.items.erase(table.items.begin() + at);
    table.keys.erase(table.keys.begin() + at);
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

void check_registered(const Tree& tree) { check_registered_at(tree, ""); }

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
    fail("the Template<{}> is unset; set it to one of {}", readable(base),
         fmt::join(template_names(base), ", "));
  Tree tree = resolved(holder->to_tree());
  check_required(tree, holder->name());
  check_values(tree, holder->name());
  mark_complete(tree);
  std::unique_ptr<TemplateHolder> ready = holder->clone();
  ready->read(TreeReader{tree, ""});
  return ready;
}

Tree holder_tree(const TemplateHolder* holder, const std::type_info& base,
                 const Provenance& provenance) {
  Tree tree;
  if (holder != nullptr) {
    tree = holder->to_tree();
    tree.template_base = &base;
    tree.hparams = &holder->type();
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
  const bool is_name = tree.is_text() && tree.text.find_first_of("{=") == std::string::npos;
  if (is_name) return swap_by_name(reader, reader.to_string(), current, base);
  return read_table(reader, current, base);
}

}  // namespace tessera
