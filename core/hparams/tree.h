// SPDX-License-Identifier: Apache-2.0
// A configuration as an ordered tree of plain values with facts from the typed structs about each
// node. Code that does not depend on a C++ type (TOML, paths, inheritance, comparison) works on
// trees, which keeps the code generated for each HParams small. Nodes have dotted paths.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

struct Tree {
  enum class Kind {
    kUnset,
    kBool,
    kInt,
    kDouble,
    kString,
    kText,  // Command line text, interpreted by the field that reads it.
    kList,
    kTable,
  };
  enum class Role { kPlain, kField, kRequired };

  Kind kind = Kind::kUnset;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0.0;
  std::string text;               // kString, kText.
  std::vector<std::string> keys;  // kTable: keys of `items`.
  std::vector<Tree> items;        // kList, kTable.

  // Set by to_tree; absent from a tree read from a file.
  Role role = Role::kPlain;
  bool is_default = false;               // Equal to the value in a default-constructed struct.
  bool is_map = false;                   // A std::map: keys are data, not fields.
  bool is_template = false;              // A Template: its class may be replaced.
  bool is_complete = false;              // A Template of a tree that is resolved and lacks nothing.
  std::string class_name;                // kTable: the struct's kName; for a template, its `type`.
  const std::type_info* type = nullptr;  // kField, kRequired: type of the value.
  const std::type_info* template_base = nullptr;  // For a Template<Base> that is set: Base,
  const std::type_info* hparams = nullptr;        // and the type of its HParams.
  std::shared_ptr<const Tree> prototype;          // Default value of an unset struct.
  std::shared_ptr<const FieldInfo> info;          // For a field with About in FIELDS.
  Provenance provenance;

  static Tree of(bool value);
  static Tree of(int64_t value);
  static Tree of(double value);
  static Tree of(std::string_view value);
  static Tree typed(std::string_view text, Provenance provenance);  // kText.
  static Tree list();
  static Tree table(std::string_view class_name = "");

  bool is_table() const { return kind == Kind::kTable; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_set() const { return kind != Kind::kUnset; }
  bool is_field() const { return role != Role::kPlain; }
  bool is_text() const { return kind == Kind::kString || kind == Kind::kText; }

  const Tree* find(std::string_view key) const;
  Tree* find(std::string_view key);
  Tree& add(std::string_view key, Tree value);     // Replaces an item with that key.
  Tree& append(std::string_view key, Tree value);  // The table has no item with that key.
  // Returns the path of items[i] if the path of this table or list is `path`.
  std::string item_path(std::string_view path, size_t i) const;

  std::string value_text() const;  // Returns TOML on one line: 3, 1e-06, "a", [1, 2], …
};

// Compares values only; the order of keys does not matter. NaN equals NaN.
bool same_value(const Tree& a, const Tree& b);

// Marks the items of `tree`, made from a struct, that equal those of `defaults`, made from a
// default-constructed struct.
void mark_defaults(Tree& tree, const Tree& defaults);

// Returns the tree after inheritance: an unset Field has the value of the nearest enclosing
// struct's Field of the same name and type. Values set by an experiment whose line is unknown cite
// the line of the template that contains them.
Tree resolved(Tree tree);

// Returns the paths of unset required fields.
std::vector<std::string> missing_fields(const Tree& tree);

// Throws an Error that lists all missing fields, if any. `what` is the configuration's name.
void check_required(const Tree& tree, std::string_view what);

// Checks numbers: Error for the first that is not in the range of its field (FieldInfo) or not
// finite in f32, with its path and where it was set.
void check_values(const Tree& tree, std::string_view what);

// Returns the shortest text that reads back exactly and is not an integer: 1.0, 1e-06, inf.
std::string double_text(double value);
// Returns a TOML basic string, quoted and escaped.
std::string quoted_text(std::string_view text);

// Joins paths of nodes: "task.model.lm_tpl.num_layers", "rules[0].axis".
std::string join_path(std::string_view path, std::string_view key);
std::string join_index(std::string_view path, size_t index);

// Returns the node at the path. Error with the nearest path if a name is unknown.
const Tree& at_path(const Tree& tree, std::string_view path);

// Returns whether the table has the first name of the path.
bool has_root(const Tree& tree, std::string_view path);

// Sets the node at the path. Text is interpreted by the field when the tree is read.
void put_at_path(Tree& tree, std::string_view path, Tree value);

// Records that the value at "path" was set by `--set path=value`, or, for "--smoke path=value", by
// that flag: for members that are not a Field and do not remember it.
void note_command_line(Tree& tree, std::string_view given);

// Returns the shortest path that ends with this name or partial path, or "". For "did you mean".
std::string path_ending_in(const Tree& tree, std::string_view name);

}  // namespace tessera
