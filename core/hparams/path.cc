// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/path.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// Splits "a.b[2].c" into a, b, 2, c. Keys that contain dots are quoted.
std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> names;
  std::string name;
  bool quote = false;
  for (const char c : path) {
    if (c == '"') {
      quote = !quote;
    } else if (!quote && (c == '.' || c == '[')) {
      if (!name.empty()) names.push_back(std::move(name));
      name.clear();
    } else if (quote || c != ']') {
      name += c;
    }
  }
  if (!name.empty()) names.push_back(std::move(name));
  if (names.empty()) fail("the path is empty; expected one such as task.train.num_train_steps");
  return names;
}

void collect(const Tree& tree, const std::string& path, std::vector<std::string>& paths) {
  if (tree.items.empty()) paths.push_back(path);
  for (size_t i = 0; i < tree.items.size(); ++i)
    collect(tree.items[i], tree.item_path(path, i), paths);
}

[[noreturn]] void fail_unknown(const Tree& root, const Tree& table, const std::string& parent,
                               const std::string& name) {
  std::string hint = nearest(name, table.keys);
  if (!hint.empty()) {
    hint = join_path(parent, hint);
  } else {
    // The name may be an incomplete path: num_layers for task.….num_layers.
    hint = path_ending_in(root, name);
  }
  const std::string where = table.is_map                ? " in this map"
                            : !table.class_name.empty() ? " in " + table.class_name
                                                        : "";
  fail("no field '{}'{}{}", join_path(parent, name), where,
       hint.empty() ? fmt::format(" (it has {})", fmt::join(table.keys, ", "))
                    : fmt::format("; did you mean '{}'?", hint));
}

size_t list_index(const Tree& list, const std::string& parent, const std::string& name) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size())
    fail("{} is a list: got '{}', expected an index such as {}", parent, name,
         join_index(parent, 0));
  if (index >= list.items.size())
    fail("{}: the list has {} elements; set the whole list to change its length",
         join_index(parent, index), list.items.size());
  return index;
}

// The item `name` of a node; null if the node is a map without that key.
Tree* step(const Tree& root, Tree& node, const std::string& parent, const std::string& name) {
  if (node.is_list()) return &node.items[list_index(node, parent, name)];
  if (!node.is_table()) {
    if (node.is_template) fail("{} is unset; give it a class first: --set {}=NAME", parent, parent);
    fail("{} is a value ({}) and has no field '{}'", parent, node.value_text(), name);
  }
  Tree* item = node.find(name);
  if (item == nullptr && !node.is_map) fail_unknown(root, node, parent, name);
  return item;
}

// Before one of its fields is set, an unset struct gets its inherited or default value.
void begin_struct(Tree& node, const Tree& whole, const std::string& path) {
  if (node.is_set() || node.prototype == nullptr) return;
  const Tree& inherited = at_path(whole, path);
  const Tree::Role role = node.role;
  const std::type_info* type = node.type;
  node = inherited.is_set() ? inherited : Tree(*node.prototype);
  node.role = role;
  node.type = type;
}

}  // namespace

const Tree& at_path(const Tree& tree, std::string_view path) {
  const Tree* node = &tree;
  std::string parent;
  for (const std::string& name : split_path(path)) {
    // step() does not modify the node; put_at_path uses it too.
    const Tree* item = step(tree, const_cast<Tree&>(*node), parent, name);
    if (item == nullptr) fail_unknown(tree, *node, parent, name);
    parent = node->is_list() ? fmt::format("{}[{}]", parent, name) : join_path(parent, name);
    node = item;
  }
  return *node;
}

bool has_root(const Tree& tree, std::string_view path) {
  return tree.find(split_path(path).front()) != nullptr;
}

void put_at_path(Tree& tree, std::string_view path, Tree value) {
  const std::vector<std::string> names = split_path(path);
  const Tree whole = resolved(tree);
  Tree* node = &tree;
  std::string parent;
  for (size_t i = 0; i < names.size(); ++i) {
    Tree* item = step(tree, *node, parent, names[i]);
    const bool is_last = i + 1 == names.size();
    if (item == nullptr) {
      if (!is_last) fail_unknown(tree, *node, parent, names[i]);
      node->add(names[i], std::move(value));
      return;
    }
    parent =
        node->is_list() ? fmt::format("{}[{}]", parent, names[i]) : join_path(parent, names[i]);
    if (is_last) {
      *item = std::move(value);
      return;
    }
    begin_struct(*item, whole, parent);
    // A Field whose struct is set in part records the source of the change.
    if (item->role == Tree::Role::kField || item->role == Tree::Role::kRequired)
      item->provenance = value.provenance;
    node = item;
  }
}

void note_command_line(Tree& tree, std::string_view given) {
  Tree* node = &tree;
  for (const std::string& name : split_path(given.substr(0, given.find('=')))) {
    Tree* item = node->is_list() ? &node->items[list_index(*node, "", name)] : node->find(name);
    if (item == nullptr) return;
    node = item;
  }
  node->is_default = false;
  node->provenance = {Origin::kCommandLine, {}, std::string(given)};
}

std::string path_ending_in(const Tree& tree, std::string_view name) {
  std::vector<std::string> paths;
  collect(tree, "", paths);
  const std::string ending = fmt::format(".{}", name);
  std::string best;
  for (const std::string& path : paths)
    if (path.ends_with(ending) && (best.empty() || path.size() < best.size())) best = path;
  return best;
}

}  // namespace tessera
