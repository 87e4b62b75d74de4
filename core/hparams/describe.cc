// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/describe.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace tessera {
namespace {

struct Line {
  std::string path;
  std::string value;
  std::string origin;
};

// Printed on one line: plain values, lists unless of templates, and structs in a Field, which are
// set and inherited as a whole.
bool is_leaf(const Tree& tree) {
  if (tree.is_list())
    return std::none_of(tree.items.begin(), tree.items.end(),
                        [](const Tree& item) { return item.is_template; });
  if (!tree.is_table()) return true;
  return !tree.is_template && (tree.items.empty() || tree.role != Tree::Role::kPlain);
}

void flatten(const Tree& tree, const std::string& path, std::vector<Line>& lines) {
  const std::string origin =
      tree.is_default || (!tree.is_set() && tree.provenance.origin == Origin::kDefault)
          ? "default"
          : tree.provenance.text();
  if (is_leaf(tree)) {
    const bool required = tree.role == Tree::Role::kRequired && !tree.is_set();
    lines.push_back({path, required ? "unset (required)" : tree.value_text(), origin});
    return;
  }
  if (tree.is_template) lines.push_back({path, tree.class_name, origin});
  for (size_t i = 0; i < tree.items.size(); ++i)
    flatten(tree.items[i], tree.is_list() ? join_index(path, i) : join_path(path, tree.keys[i]),
            lines);
}

std::vector<Line> flat(const Tree& tree) {
  std::vector<Line> lines;
  flatten(resolved(tree), "", lines);
  return lines;
}

}  // namespace

std::string describe(const Tree& tree) {
  const std::vector<Line> lines = flat(tree);
  size_t width = 0;
  for (const Line& line : lines) width = std::max(width, line.path.size() + 3 + line.value.size());
  width = std::min<size_t>(width, 72);
  std::string text;
  for (const Line& line : lines)
    text += fmt::format("{:<{}}  # {}\n", line.path + " = " + line.value, width, line.origin);
  return text;
}

std::vector<std::string> diff(const Tree& before, const Tree& after) {
  std::vector<std::string> differences;
  const std::vector<Line> old_lines = flat(before);
  const std::vector<Line> new_lines = flat(after);
  std::map<std::string, std::string> old_values;
  std::map<std::string, std::string> new_values;
  for (const Line& line : old_lines) old_values[line.path] = line.value;
  for (const Line& line : new_lines) new_values[line.path] = line.value;
  const auto value_of = [](const std::map<std::string, std::string>& values,
                           const std::string& path) {
    const auto at = values.find(path);
    return at == values.end() ? std::string("absent") : at->second;
  };
  const auto compare = [&](const std::string& path) {
    const std::string old_value = value_of(old_values, path);
    const std::string new_value = value_of(new_values, path);
    if (old_value != new_value)
      differences.push_back(fmt::format("{}: {} -> {}", path, old_value, new_value));
  };
  for (const Line& line : new_lines) compare(line.path);
  for (const Line& line : old_lines)
    if (!new_values.contains(line.path)) compare(line.path);
  return differences;
}

}  // namespace tessera
