// SPDX-License-Identifier: Apache-2.0
// A configuration as an ordered tree of plain values, with what the typed structs know of each node
// beside it. Everything that is not tied to a C++ type (TOML, paths, inheritance, comparison) works
// on this, so that the code generated for each HParams stays small.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "core/hparams/provenance.h"

namespace tessera {

struct Tree {
  enum class Kind {
    kUnset,
    kBool,
    kInt,
    kDouble,
    kString,
    kText,  // As typed on a command line: what it means depends on the field that reads it.
    kList,
    kTable,
  };
  enum class Role { kPlain, kField, kRequired };

  Kind kind = Kind::kUnset;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0.0;
  std::string text;               // kString, kText.
  std::vector<std::string> keys;  // kTable: one for each of `items`.
  std::vector<Tree> items;        // kList, kTable.

  // What follows comes from to_tree and is absent from a tree read out of a file.
  Role role = Role::kPlain;
  bool is_default = false;               // Its value is that of a freshly made struct.
  bool is_map = false;                   // Keys are data, not fields.
  bool is_template = false;              // Its class may be exchanged for another.
  std::string class_name;                // kTable: the struct's kName. A template's is its `type`.
  const std::type_info* type = nullptr;  // Of the value a field holds.
  const std::type_info* template_base = nullptr;  // Of a Template<Base> that holds something: Base,
  const std::type_info* hparams = nullptr;        // and the HParams that it holds.
  std::shared_ptr<const Tree>
      prototype;  // A new element of a list or map; an unset struct's start.
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

  const Tree* find(std::string_view key) const;
  Tree* find(std::string_view key);
  Tree& add(std::string_view key, Tree value);  // Replaces an item of that key.

  std::string value_text() const;  // As TOML would have it, on one line: 3, 1e-06, "a", [1, 2], …
};

// Equal values, whatever else is known of them; keys may stand in any order. NaN equals NaN.
bool same_value(const Tree& a, const Tree& b);

// Marks the items of `tree`, made from a struct, that are as in `defaults`, a fresh one's.
void mark_defaults(Tree& tree, const Tree& defaults);

// "a", "a.b" and "a[0]": how paths are written.
std::string join_path(std::string_view path, std::string_view key);
std::string join_index(std::string_view path, size_t index);

// 1.0, 1e-06, inf: a double's shortest text that reads back exactly and is no integer's.
std::string double_text(double value);
// Quoted and escaped as a TOML basic string.
std::string quoted_text(std::string_view text);

}  // namespace tessera
