// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/tree.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/error.h"

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
  const bool given = item.provenance.origin == Origin::kCommandLine;
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
  // Cite the outermost owner.
  Provenance provenance = source.provenance;
  if (provenance.origin != Origin::kInherited)
    provenance = {Origin::kInherited, {}, from.path.empty() ? "the top level" : from.path};
  item = source;
  item.role = role;
  item.is_default = false;
  item.provenance = std::move(provenance);
}

// The first line, in the order of fields, at which an experiment set something in the tree.
SourceSite first_site(const Tree& tree) {
  if (tree.provenance.origin == Origin::kExperiment && tree.provenance.site.known())
    return tree.provenance.site;
  for (const Tree& item : tree.items)
    if (const SourceSite site = first_site(item); site.known()) return site;
  return {};
}

// For a value without a known line: that of something inside it, else that of what encloses it.
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
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &items[static_cast<size_t>(at - keys.begin())];
}

Tree* Tree::find(std::string_view key) { return const_cast<Tree*>(std::as_const(*this).find(key)); }

Tree& Tree::add(std::string_view key, Tree value) {
  if (Tree* old = find(key)) return *old = std::move(value);
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
  std::string joined;
  const auto append = [&joined](const std::string& item) {
    if (!joined.empty()) joined += ", ";
    joined += item;
  };
  if (is_template) append("type = " + quoted_text(class_name));
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_list()) {
      append(items[i].value_text());
    } else if (items[i].is_set()) {
      append(join_path("", keys[i]) + " = " + items[i].value_text());
    }
  }
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
      return a.items.size() == b.items.size() &&
             std::equal(a.items.begin(), a.items.end(), b.items.begin(), same_value);
    case Tree::Kind::kTable:
      break;
  }
  if (a.class_name != b.class_name || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    const Tree* other = b.find(a.keys[i]);
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

std::string join_path(std::string_view path, std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
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

}  // namespace tessera
