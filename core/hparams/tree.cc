// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace tessera {
namespace {

void mark_whole(Tree& tree) {
  tree.is_default = true;
  tree.provenance = {};
  for (Tree& item : tree.items) mark_whole(item);
}

void mark(Tree& item, const Tree& fresh) {
  // The source location of a default member initialiser is that of the struct's user, so a site
  // does not tell a default from the same value set explicitly. Compare values instead.
  const bool given =
      item.provenance.origin == Origin::kCommandLine || item.provenance.origin == Origin::kFlag;
  if (same_value(item, fresh) && !given) return mark_whole(item);
  item.is_default = false;
  if (item.provenance.origin == Origin::kDefault) item.provenance.origin = Origin::kExperiment;
  const bool same_class =
      item.is_table() && fresh.is_table() && !item.is_map && item.class_name == fresh.class_name;
  if (same_class) mark_defaults(item, fresh);
}

struct Scope {
  const Tree* table;
  std::string path;
};

bool may_inherit(const Tree& item) {
  return item.is_field() && item.type != nullptr &&
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
  const std::shared_ptr<const FieldInfo> info = item.info;
  // Cite the outermost owner.
  Provenance provenance = source.provenance;
  if (provenance.origin != Origin::kInherited)
    provenance = {Origin::kInherited, {}, from.path.empty() ? "the top level" : from.path};
  item = source;
  item.role = role;
  item.info = info;
  item.is_default = false;
  item.provenance = std::move(provenance);
}

// Returns the first line, in the order of fields, at which an experiment set something in the tree.
SourceSite first_site(const Tree& tree) {
  if (tree.provenance.origin == Origin::kExperiment && tree.provenance.site.known())
    return tree.provenance.site;
  for (const Tree& item : tree.items)
    if (const SourceSite site = first_site(item); site.known()) return site;
  return {};
}

// Returns, for a value without a known line, that of something inside it, else of its enclosing
// struct.
SourceSite likely_site(const Tree& item, SourceSite enclosing) {
  const SourceSite inside =
      item.is_template || !enclosing.known() ? first_site(item) : SourceSite{};
  return inside.known() ? inside : enclosing;
}

void resolve(Tree& tree, const std::string& path, SourceSite site, std::vector<Scope>& enclosing) {
  if (tree.provenance.site.known()) site = tree.provenance.site;
  const bool is_struct = tree.is_table() && !tree.is_map;
  // Before descending, so that inner structs can inherit what this one inherited.
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
    resolve(item, tree.item_path(path, i), site, enclosing);
  }
  if (is_struct) enclosing.pop_back();
}

void find_missing(const Tree& tree, const std::string& path, std::vector<std::string>& missing) {
  if (tree.role == Tree::Role::kRequired && !tree.is_set()) missing.push_back(path);
  for (size_t i = 0; i < tree.items.size(); ++i)
    find_missing(tree.items[i], tree.item_path(path, i), missing);
}

// Returns the expected range of the number of a field, or "" if the number is in it.
std::string expected_number(const Tree& tree, const FieldInfo& info) {
  const bool is_int = tree.kind == Tree::Kind::kInt;
  const double number = is_int ? static_cast<double>(tree.integer) : tree.number;
  if (number == info.also) return "";
  if (!std::isfinite(static_cast<float>(number))) return "a finite number (at most 3.4e38)";
  if (info.allows(number)) return "";
  return info.range();
}

enum class Values { kSet, kAll };  // Whether inherited values count too.

// Checks values; `info` is of the field to which the node belongs, as an element or by itself.
void check_values_at(const Tree& tree, const std::string& path, const FieldInfo& info,
                     std::string_view what, Values values) {
  if (values == Values::kSet && tree.provenance.origin == Origin::kInherited) return;
  const FieldInfo& own = tree.info ? *tree.info : info;
  if (tree.kind == Tree::Kind::kInt || tree.kind == Tree::Kind::kDouble) {
    const std::string expected = expected_number(tree, own);
    if (expected.empty()) return;
    const Provenance& source = tree.provenance;
    const std::string where = source.origin == Origin::kInherited ? source.text()
                              : source.site.known()               ? "set at " + source.site.text()
                                                                  : "";
    fail("{}: {} is {}, expected {}{}{}", what, path, tree.value_text(), expected,
         own.text.empty() ? "" : fmt::format(" ({})", own.text),
         where.empty() ? "" : fmt::format("; {}", where));
  }
  const bool are_elements = tree.is_list() || tree.is_map;
  for (size_t i = 0; i < tree.items.size(); ++i)
    check_values_at(tree.items[i], tree.item_path(path, i), are_elements ? own : FieldInfo{}, what,
                    values);
}

// Takes a name off the path: in quotes, with a backslash before quotes in it, if it contains dots.
std::string take_path_name(std::string_view& path) {
  const bool is_quoted = path.starts_with('"');
  std::string name;
  size_t end = is_quoted ? 1 : 0;
  for (; end < path.size(); ++end) {
    if (is_quoted ? path[end] == '"' : std::string_view(".[]\"").find(path[end]) != path.npos)
      break;
    if (is_quoted && path[end] == '\\' && end + 1 < path.size()) ++end;
    name += path[end];
  }
  if (is_quoted && end++ == path.size())
    fail("the path has a quotation mark that is not closed: {}", shortened(path));
  path.remove_prefix(end);
  return name;
}

// Splits "a.b[2].c" into a, b, 2, c. Error with the path that may be meant for "a..b", "a]", "[a".
std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> names;
  std::string meant;
  bool is_exact = true, is_index = false;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view between = rest.substr(0, rest.find_first_not_of(".[]"));
    rest.remove_prefix(between.size());
    const std::string_view close = is_index ? "]" : "", after = between.substr(0, close.size());
    const std::string_view opening = between.substr(after.size());
    is_exact = is_exact && after == close &&
               (names.empty() || rest.empty() ? opening.empty() : opening == "." || opening == "[");
    is_index = !names.empty() && !rest.empty() && between.ends_with('[');
    if (rest.empty()) break;
    names.push_back(take_path_name(rest));
    is_exact = is_exact && !names.back().empty();
    meant = is_index ? fmt::format("{}[{}]", meant, names.back()) : join_path(meant, names.back());
  }
  if (names.empty()) fail("the path is empty; expected one such as task.train.num_train_steps");
  if (!is_exact || is_index)
    fail("'{}' is not a path; did you mean '{}'?", shortened(path), shortened(meant));
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
  fail("no field '{}'{}{}", join_path(parent, shortened(name)), where,
       hint.empty() ? fmt::format(" (it has {})", fmt::join(table.keys, ", "))
                    : fmt::format("; did you mean '{}'?", hint));
}

size_t list_index(const Tree& list, const std::string& parent, const std::string& name) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size())
    fail("{} is a list: got '{}', expected an index such as {}", parent, shortened(name),
         join_index(parent, 0));
  if (index >= list.items.size())
    fail("{}: the list has {} elements; set the whole list to change its length",
         join_index(parent, index), list.items.size());
  return index;
}

// Returns the item `name` of a node; null if the node is a map without that key.
Tree* step(const Tree& root, Tree& node, const std::string& parent, const std::string& name) {
  if (node.is_list()) return &node.items[list_index(node, parent, name)];
  if (!node.is_table()) {
    if (node.is_template) fail("{} is unset; give it a class first: --set {}=NAME", parent, parent);
    fail("{} is a value ({}) and has no field '{}'", parent, shortened(node.value_text()),
         shortened(name));
  }
  Tree* item = node.find(name);
  if (item == nullptr && !node.is_map) fail_unknown(root, node, parent, name);
  return item;
}

// Returns the path of an item of the table or list at `parent`.
std::string path_of(const Tree& node, const Tree& item, const std::string& parent) {
  return node.item_path(parent, static_cast<size_t>(&item - node.items.data()));
}

// Gives an unset struct its inherited or default value, before one of its fields is set.
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

Tree Tree::of(bool value) { return {.kind = Kind::kBool, .boolean = value}; }
Tree Tree::of(int64_t value) { return {.kind = Kind::kInt, .integer = value}; }
Tree Tree::of(double value) { return {.kind = Kind::kDouble, .number = value}; }
Tree Tree::of(std::string_view value) {
  return {.kind = Kind::kString, .text = std::string(value)};
}
Tree Tree::typed(std::string_view text, Provenance provenance) {
  return {.kind = Kind::kText, .text = std::string(text), .provenance = std::move(provenance)};
}
Tree Tree::list() { return {.kind = Kind::kList}; }
Tree Tree::table(std::string_view class_name) {
  return {.kind = Kind::kTable, .class_name = std::string(class_name)};
}

const Tree* Tree::find(std::string_view key) const {
  const auto at = std::ranges::find(keys, key);
  return at == keys.end() ? nullptr : &items[static_cast<size_t>(at - keys.begin())];
}

Tree* Tree::find(std::string_view key) { return const_cast<Tree*>(std::as_const(*this).find(key)); }

Tree& Tree::add(std::string_view key, Tree value) {
  if (Tree* old = find(key)) return *old = std::move(value);
  return append(key, std::move(value));
}

Tree& Tree::append(std::string_view key, Tree value) {
  keys.emplace_back(key);
  return items.emplace_back(std::move(value));
}

std::string Tree::item_path(std::string_view path, size_t i) const {
  return is_list() ? join_index(path, i) : join_path(path, keys[i]);
}

std::string Tree::value_text() const {
  switch (kind) {
    case Kind::kUnset:
      return "unset";
    case Kind::kBool:
      return boolean ? "true" : "false";
    case Kind::kInt:
      return fmt::format("{}", integer);
    case Kind::kDouble:
      return double_text(number);
    case Kind::kString:
      return quoted_text(text);
    case Kind::kText:
      return text;
    case Kind::kList:
    case Kind::kTable:
      break;
  }
  std::vector<std::string> parts;
  if (is_template) parts.push_back("type = " + quoted_text(class_name));
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_list()) {
      parts.push_back(items[i].value_text());
    } else if (items[i].is_set()) {
      parts.push_back(join_path("", keys[i]) + " = " + items[i].value_text());
    }
  }
  const std::string joined = fmt::format("{}", fmt::join(parts, ", "));
  return is_list() ? "[" + joined + "]" : "{" + joined + "}";
}

bool same_value(const Tree& a, const Tree& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Tree::Kind::kUnset:
      return true;
    case Tree::Kind::kBool:
      return a.boolean == b.boolean;
    case Tree::Kind::kInt:
      return a.integer == b.integer;
    case Tree::Kind::kDouble:
      if (std::isnan(a.number) || std::isnan(b.number))
        return std::isnan(a.number) && std::isnan(b.number);
      return a.number == b.number && std::signbit(a.number) == std::signbit(b.number);
    case Tree::Kind::kString:
    case Tree::Kind::kText:
      return a.text == b.text;
    case Tree::Kind::kList:
      return std::ranges::equal(a.items, b.items, same_value);
    case Tree::Kind::kTable:
      break;
  }
  if (a.class_name != b.class_name || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    const Tree* other = b.keys[i] == a.keys[i] ? &b.items[i] : b.find(a.keys[i]);
    if (other == nullptr || !same_value(a.items[i], *other)) return false;
  }
  return true;
}

void mark_defaults(Tree& tree, const Tree& defaults) {
  for (size_t i = 0; i < tree.items.size(); ++i)
    if (const Tree* fresh = defaults.find(tree.keys[i])) mark(tree.items[i], *fresh);
}

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

void check_values(const Tree& tree, std::string_view what) {
  check_values_at(tree, "", {}, what, Values::kSet);  // The field to change comes first.
  check_values_at(tree, "", {}, what, Values::kAll);
}

std::string join_path(std::string_view path, std::string_view key) {
  const bool bare = !key.empty() && std::ranges::all_of(key, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  const std::string name = bare ? std::string(key) : quoted_text(key);
  return path.empty() ? name : fmt::format("{}.{}", path, name);
}

std::string join_index(std::string_view path, size_t index) {
  return fmt::format("{}[{}]", path, index);
}

std::string double_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string quoted_text(std::string_view text) {
  constexpr std::string_view kSpecial = "\"\\\n\t\r", kLetters = "\"\\ntr";
  std::string out = "\"";
  for (const char c : text) {
    if (const size_t at = kSpecial.find(c); at != std::string_view::npos) {
      out += {'\\', kLetters[at]};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

const Tree& at_path(const Tree& tree, std::string_view path) {
  const Tree* node = &tree;
  std::string parent;
  for (const std::string& name : split_path(path)) {
    // step() does not modify the node; put_at_path uses it too.
    const Tree* item = step(tree, const_cast<Tree&>(*node), parent, name);
    if (item == nullptr) fail_unknown(tree, *node, parent, name);
    parent = path_of(*node, *item, parent);
    node = item;
  }
  return *node;
}

bool has_root(const Tree& tree, std::string_view path) {
  return tree.find(split_path(path).front()) != nullptr;
}

void put_at_path(Tree& tree, std::string_view path, Tree value) {
  std::vector<std::string> names = split_path(path);
  const std::string last = std::move(names.back());
  names.pop_back();
  const Tree whole = resolved(tree);
  Tree* node = &tree;
  std::string parent;
  for (const std::string& name : names) {
    Tree* item = step(tree, *node, parent, name);
    if (item == nullptr) fail_unknown(tree, *node, parent, name);
    parent = path_of(*node, *item, parent);
    begin_struct(*item, whole, parent);
    // A Field whose struct is set in part records the source of the change.
    if (item->is_field()) item->provenance = value.provenance;
    node = item;
  }
  if (Tree* item = step(tree, *node, parent, last)) {
    *item = std::move(value);
  } else {
    node->add(last, std::move(value));
  }
}

void note_command_line(Tree& tree, std::string_view given) {
  Provenance provenance{Origin::kCommandLine, {}, std::string(given)};
  if (given.starts_with("--")) {  // No path does.
    const size_t space = given.find(' ');
    provenance = {Origin::kFlag, {}, std::string(given.substr(0, space))};
    given.remove_prefix(space + 1);
  }
  Tree* node = &tree;
  for (const std::string& name : split_path(given.substr(0, given.find('=')))) {
    Tree* item = node->is_list() ? &node->items[list_index(*node, "", name)] : node->find(name);
    if (item == nullptr) return;
    node = item;
  }
  node->is_default = false;
  node->provenance = std::move(provenance);
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
