// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/resolve.h"

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

struct Scope {
  const Tree* table;
  std::string path;
};

bool may_inherit(const Tree& item) {
  const bool is_field = item.role == Tree::Role::kField || item.role == Tree::Role::kRequired;
  return is_field && item.type != nullptr &&
         (!item.is_set() || item.provenance.origin == Origin::kInherited);
}

const Scope* nearest_with(const std::vector<Scope>& enclosing, std::string_view key,
                          const Tree& field) {
  for (auto scope = enclosing.rbegin(); scope != enclosing.rend(); ++scope) {
    const Tree* other = scope->table->find(key);
    if (other != nullptr && other->is_set() && other->type != nullptr &&
        *other->type == *field.type)
      return &*scope;
  }
  return nullptr;
}

void inherit(Tree& item, std::string_view key, const Scope& from) {
  const Tree& source = *from.table->find(key);
  const Tree::Role role = item.role;
  // The outermost owner is the one to name.
  Provenance provenance = source.provenance;
  if (provenance.origin != Origin::kInherited)
    provenance = {Origin::kInherited, {}, from.path.empty() ? "the top level" : from.path};
  item = source;
  item.role = role;
  item.is_default = false;
  item.provenance = std::move(provenance);
}

// The first line in a tree at which an experiment set something, in the order of its fields.
SourceSite first_site(const Tree& tree) {
  if (tree.provenance.origin == Origin::kExperiment && tree.provenance.site.known())
    return tree.provenance.site;
  for (const Tree& item : tree.items)
    if (const SourceSite site = first_site(item); site.known()) return site;
  return {};
}

// A value that knows no line of its own was set near what it holds, or else near what holds it.
SourceSite likely_site(const Tree& item, SourceSite enclosing) {
  const SourceSite inside =
      item.is_template || !enclosing.known() ? first_site(item) : SourceSite{};
  return inside.known() ? inside : enclosing;
}

void resolve(Tree& tree, const std::string& path, SourceSite site, std::vector<Scope>& enclosing) {
  if (tree.provenance.site.known()) site = tree.provenance.site;
  const bool is_struct = tree.is_table() && !tree.is_map;
  // Fields first: what is inherited here is there for what is below.
  for (size_t i = 0; is_struct && i < tree.items.size(); ++i) {
    Tree& item = tree.items[i];
    if (!may_inherit(item)) continue;
    if (const Scope* from = nearest_with(enclosing, tree.keys[i], item))
      inherit(item, tree.keys[i], *from);
  }
  if (is_struct) enclosing.push_back({&tree, path});
  for (size_t i = 0; i < tree.items.size(); ++i) {
    Tree& item = tree.items[i];
    if (item.provenance.origin == Origin::kExperiment && !item.provenance.site.known())
      item.provenance.site = likely_site(item, site);
    const std::string below = tree.is_list() ? join_index(path, i) : join_path(path, tree.keys[i]);
    resolve(item, below, site, enclosing);
  }
  if (is_struct) enclosing.pop_back();
}

void find_missing(const Tree& tree, const std::string& path, std::vector<std::string>& missing) {
  if (tree.role == Tree::Role::kRequired && !tree.is_set()) missing.push_back(path);
  for (size_t i = 0; i < tree.items.size(); ++i)
    find_missing(tree.items[i],
                 tree.is_list() ? join_index(path, i) : join_path(path, tree.keys[i]), missing);
}

}  // namespace

Tree resolved(Tree tree) {
  std::vector<Scope> enclosing;
  resolve(tree, "", {}, enclosing);
  return tree;
}

std::vector<std::string> missing_fields(const Tree& tree) {
  std::vector<std::string> missing;
  find_missing(tree, "", missing);
  return missing;
}

void check_required(const Tree& tree, std::string_view what) {
  const std::vector<std::string> missing = missing_fields(tree);
  if (missing.empty()) return;
  fail("{}: {} not set: {}; set {} in the experiment or with --set", what,
       missing.size() == 1 ? "a required field is"
                           : fmt::format("{} required fields are", missing.size()),
       fmt::join(missing, ", "), missing.size() == 1 ? "it" : "them");
}

}  // namespace tessera
