// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/text.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <toml++/toml.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/hparams/fold_layers.h"

namespace tessera {
namespace {

class Writer {
 public:
  std::string take() { return std::move(text_); }

  void heading(std::string_view lines) {
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      text_ += fmt::format("# {}\n", lines.substr(0, end));
      lines.remove_prefix(std::min(end + 1, lines.size()));
    }
  }

  // Writes the values of a table, then its sections.
  void body(const Tree& table, const std::string& path) {
    if (table.is_template)
      line("type", quoted_text(table.class_name), table.provenance, table.is_default);
    for (size_t i = 0; i < table.items.size(); ++i)
      if (!is_section(table.items[i])) value(table.keys[i], table.items[i]);
    for (size_t i = 0; i < table.items.size(); ++i)
      if (is_section(table.items[i])) section(table.items[i], join_path(path, table.keys[i]));
  }

 private:
  // Structs in a Field (a dtype policy, say) are written inline.
  static bool is_section(const Tree& item) {
    if (item.is_list())
      return std::ranges::any_of(item.items,
                                 [](const Tree& element) { return element.is_template; });
    if (!item.is_table()) return false;
    return item.is_template || item.role == Tree::Role::kPlain;
  }

  void section(const Tree& item, const std::string& path) {
    if (item.is_list()) {
      for (const Tree& element : item.items) {
        text_ += fmt::format("\n[[{}]]\n", path);
        body(element, path);
      }
      return;
    }
    text_ += fmt::format("\n[{}]\n", path);
    body(item, path);
  }

  void value(std::string_view key, const Tree& item) {
    const std::string name = join_path("", key);
    if (!item.is_set()) {
      // A field unset by default needs only a comment; one unset explicitly must be read back.
      if (item.is_default) {
        text_ += fmt::format("# {} is {}unset\n", name,
                             item.role == Tree::Role::kRequired ? "required and " : "");
      } else {
        line(name, "{}", {Origin::kExperiment, {}, "unset"}, false);
      }
    } else if (item.provenance.origin == Origin::kInherited) {
      text_ += "# ";
      line(name, item.value_text(), item.provenance, false);
    } else {
      line(name, item.value_text(), item.provenance, item.is_default);
    }
  }

  void line(std::string_view key, std::string_view value, const Provenance& provenance,
            bool is_default) {
    std::string comment = is_default ? "" : provenance.text();
    for (char& c : comment)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    const std::string setting = fmt::format("{} = {}", key, value);
    // An inherited value is preceded by "# ".
    const int width = provenance.origin == Origin::kInherited ? 38 : 40;
    text_ +=
        comment.empty() ? setting + "\n" : fmt::format("{:<{}}  # {}\n", setting, width, comment);
  }

  std::string text_;
};

constexpr size_t kMostBytes = size_t{1} << 22;     // File size; a configuration has a few thousand.
constexpr size_t kMostElements = size_t{1} << 16;  // Elements of a list or table: each is a Tree.

void check_size(size_t elements, const toml::node& node, const Provenance& provenance,
                const std::string& path) {
  if (elements > kMostElements)
    fail("{}:{}: {} has {} elements, expected at most {}", provenance.note,
         node.source().begin.line, path.empty() ? "the file" : path, elements, kMostElements);
}

Tree from_node(const toml::node& node, const Provenance& provenance, const std::string& path) {
  Tree tree;
  if (const auto* table = node.as_table()) {
    check_size(table->size(), node, provenance, path);
    tree = Tree::table();
    for (const auto& [key, item] : *table)
      tree.append(key.str(), from_node(item, provenance, join_path(path, shortened(key.str()))));
  } else if (const auto* array = node.as_array()) {
    check_size(array->size(), node, provenance, path);
    tree = Tree::list();
    for (const toml::node& item : *array) tree.items.push_back(from_node(item, provenance, path));
  } else if (const auto* text = node.as_string()) {
    tree = Tree::of(std::string_view(text->get()));
  } else if (const auto* integer = node.as_integer()) {
    tree = Tree::of(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    tree = Tree::of(number->get());
  } else if (const auto* boolean = node.as_boolean()) {
    tree = Tree::of(boolean->get());
  } else {
    fail("{}:{}: a configuration cannot contain dates and times; write a string", provenance.note,
         node.source().begin.line);
  }
  tree.provenance = provenance;
  return tree;
}

toml::table parse(std::string_view text, std::string_view name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", name, error.source().begin.line, error.description());
  }
}

struct Line {
  std::string path;
  std::string value;
  std::string origin;
  std::shared_ptr<const FieldInfo> info;

  std::string comment() const {  // "default; share of activations set to 0 (at least 0 …)"
    const std::string range = info ? info->range() : "";
    const std::string_view text = info ? info->text : "";
    if (text.empty()) return range.empty() ? origin : fmt::format("{}; {}", origin, range);
    return fmt::format("{}; {}{}", origin, text, range.empty() ? "" : fmt::format(" ({})", range));
  }
};

// Returns whether it is printed on one line: plain values, lists except of templates, and structs
// in a Field, which are set and inherited as a whole.
bool is_leaf(const Tree& tree) {
  if (tree.is_list())
    return std::ranges::none_of(tree.items, [](const Tree& item) { return item.is_template; });
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
    lines.push_back({path, required ? "unset (required)" : tree.value_text(), origin, tree.info});
    return;
  }
  if (tree.is_template) lines.push_back({path, tree.class_name, origin, tree.info});
  for (size_t i = 0; i < tree.items.size(); ++i)
    flatten(tree.items[i], tree.item_path(path, i), lines);
}

std::vector<Line> flat(const Tree& tree) {
  std::vector<Line> lines;
  flatten(resolved(tree), "", lines);
  return lines;
}

// Checks for UTF-8: TOML has no escapes for other bytes, and the text must be readable again.
void check_utf8(const std::string& toml) {
  if (valid_utf8(toml) == toml) return;
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);)
    if (valid_utf8(line) != line)
      fail(
          "a configuration file cannot store this line, which is not valid UTF-8: {}; rename the "
          "file that it names, or give a link to it that has a valid name",
          printable(line));
}

}  // namespace

std::string to_toml(const Tree& tree, std::string_view heading) {
  Writer writer;
  writer.heading(heading);
  writer.body(resolved(tree), "");
  std::string text = writer.take();
  check_utf8(text);
  return text;
}

Tree parse_toml(std::string_view text, std::string_view name) {
  if (text.size() > kMostBytes)
    fail("{}: has {} bytes, expected at most {}", name, text.size(), kMostBytes);
  return from_node(parse(text, name), {Origin::kFile, {}, std::string(name)}, "");
}

Tree parse_toml_value(std::string_view text, const Provenance& provenance) {
  const std::string name = shortened(text);
  const toml::table table = parse(fmt::format("value = {}", text), name);
  if (table.size() != 1) fail("{}: expected one value", name);
  return from_node(*table.get("value"), provenance, "value");
}

std::string describe(const Tree& tree) {
  const std::vector<Line> lines = flat(tree);
  std::vector<PathRow> rows;  // An inherited value names the layer that it is inherited from.
  for (const Line& line : lines)
    rows.push_back({line.path, line.value + '\n' + without_indices(line.comment())});
  const std::vector<FoldedRow> folded = fold_layers(rows);
  const auto setting = [&](const FoldedRow& row) {
    return row.path + " = " + lines[row.rows[0]].value;
  };
  size_t width = 0;
  for (const FoldedRow& row : folded) width = std::max(width, setting(row).size());
  width = std::min<size_t>(width, 72);
  std::string text;
  for (const FoldedRow& row : folded) {
    const std::string comment = lines[row.rows[0]].comment();
    text += fmt::format("{:<{}}  # {}\n", setting(row), width,
                        row.rows.size() > 1 ? without_indices(comment) : comment);
  }
  return text;
}

std::vector<std::string> diff(const Tree& before, const Tree& after) {
  struct Change {
    std::string before = "absent", after = "absent";
  };
  std::map<std::string, Change> changes;
  std::vector<std::string> paths;  // Paths of `after`, then those only in `before`.
  for (const Line& line : flat(after)) {
    changes[line.path].after = line.value;
    paths.push_back(line.path);
  }
  for (const Line& line : flat(before)) {
    if (!changes.contains(line.path)) paths.push_back(line.path);
    changes[line.path].before = line.value;
  }
  std::vector<std::string> differences;
  for (const std::string& path : paths)
    if (const Change& change = changes[path]; change.before != change.after)
      differences.push_back(
          fmt::format("{}: {} -> {}", path, shortened(change.before), shortened(change.after)));
  return differences;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

SplitText split_top_level(std::string_view text, char separator) {
  SplitText split;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (split.open_quote != '\0') {
      if (c == '\\' && split.open_quote == '"') {
        ++i;
      } else if (c == split.open_quote) {
        split.open_quote = '\0';
      }
    } else if (c == '"' || c == '\'') {
      split.open_quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++split.open_brackets;
    } else if (c == ']' || c == '}' || c == ')') {
      --split.open_brackets;
    } else if (c == separator && split.open_brackets == 0) {
      split.parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  const std::string_view last = trimmed(text.substr(std::min(begin, text.size())));
  if (!last.empty() || !split.parts.empty()) split.parts.push_back(last);
  return split;
}

}  // namespace tessera
