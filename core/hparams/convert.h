// SPDX-License-Identifier: Apache-2.0
// Conversion between HParams and Tree. These templates are instantiated for every configuration
// type, so they are kept small.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"
#include "core/hparams/tree.h"

namespace tessera {

// Reads "1000", "+1000", "1_000" and "1e3"; nullopt if it is not an integer or does not fit.
std::optional<int64_t> parse_integer(std::string_view text);
// Reads "0.5", "1e-3" and "inf"; nullopt if it is not a number.
std::optional<double> parse_real(std::string_view text);

// Typed reading of one tree node. `path` is for messages: every function throws an Error
// "<path>: got <value>, expected …" if the node has another kind. Command line text is parsed here,
// according to the expected type.
struct TreeReader {
  const Tree& tree;
  std::string path;

  bool to_bool() const;
  int64_t to_int(int64_t lowest, int64_t highest) const;
  double to_double() const;
  std::string to_string() const;
  DType to_dtype() const;
  // Returns the value's index in `names`.
  size_t to_enumerator(const std::vector<std::string>& names) const;

  bool unsets() const;  // Returns whether it is unset, or the text "unset".
  // Returns the node as a list or table. Command line text is parsed: "1,4,1" or "[1,4,1]", "{a =
  // 1}" or "a=1,b=2".
  Tree to_list() const;
  Tree to_table() const;

  // Throws an Error if a key of this table is not one of `fields`.
  void reject_unknown(std::string_view class_name, const std::vector<std::string>& fields) const;
  // Throws "<path>: got <value>, expected <expected>".
  [[noreturn]] void fail_type(std::string_view expected) const;
};

namespace detail {

// Both directions of a type: a class, so that one line instantiates them in one place.
template <typename T>
struct Conversion {
  static Tree write(const T& value);
  static void read(const TreeReader& reader, T& value);
};

}  // namespace detail

template <typename T>
Tree to_tree(const T& value) {
  return detail::Conversion<T>::write(value);
}

// Sets the fields of `value` that the tree contains and leaves the others unchanged. Errors name
// the path.
template <typename T>
void from_tree(const TreeReader& reader, T& value) {
  detail::Conversion<T>::read(reader, value);
}

template <typename T>
void from_tree(const Tree& tree, T& value) {
  from_tree(TreeReader{tree, ""}, value);
}

// Returns the name of a struct in messages and dumps: its kName, or that of the class it
// configures.
template <typename P>
constexpr std::string_view class_name() {
  if constexpr (requires { P::kName; }) {
    return P::kName;
  } else if constexpr (requires { typename P::Instance; }) {
    return detail::type_name<typename P::Instance>();
  } else {
    return "";
  }
}

namespace detail {

template <typename T, template <typename...> class Kind>
inline constexpr bool is_a = false;
template <template <typename...> class Kind, typename... Args>
inline constexpr bool is_a<Kind<Args...>, Kind> = true;

template <typename T>
inline constexpr bool is_field = is_a<T, Field> || is_a<T, Required>;

// Template<Base> converts itself.
template <typename T>
concept ConvertsItself = requires(T& value, const TreeReader& reader) {
  std::as_const(value).to_tree();
  value.read(reader);
};

template <typename T>
std::shared_ptr<const Tree> prototype() {
  if constexpr (std::is_abstract_v<T>) {
    return nullptr;
  } else {
    static const auto tree = std::make_shared<const Tree>(to_tree(T{}));
    return tree;
  }
}

// Adds a field; Error if the struct has another field of this name, in its base or in an inlined
// struct.
void add_field(Tree& tree, std::string_view name, Tree value, const FieldInfo* info,
               const std::type_info& owner);

template <typename P>
Tree plain_fields_tree(const P& p) {
  Tree tree = Tree::table(class_name<P>());
  visit_fields(p, [&tree](std::string_view name, const auto& member, const FieldInfo* info) {
    add_field(tree, name, to_tree(member), info, typeid(P));
  });
  return tree;
}

template <typename P>
Tree fields_tree(const P& p) {
  Tree tree = plain_fields_tree(p);
  if constexpr (!std::is_abstract_v<P>) {
    // Made once for a type: it contains the defaults of all nested templates.
    static const Tree defaults = plain_fields_tree(P{});
    mark_defaults(tree, defaults);
  }
  return tree;
}

template <typename T>
Tree field_tree(const Field<T>& field, Tree::Role role) {
  Tree tree;
  if (field.has()) {
    tree = to_tree(field.get());
    tree.provenance = field.provenance();
  } else if constexpr (HasFields<T>) {
    tree.prototype = prototype<T>();
  }
  tree.role = role;
  tree.type = &typeid(T);
  return tree;
}

template <typename P>
void read_fields(const TreeReader& reader, P& p) {
  const Tree table = reader.to_table();
  std::vector<std::string> names;
  visit_fields(p, [&](std::string_view name, auto& member, const FieldInfo*) {
    names.emplace_back(name);
    if (const Tree* item = table.find(name))
      from_tree(TreeReader{*item, join_path(reader.path, name)}, member);
  });
  TreeReader{table, reader.path}.reject_unknown(class_name<P>(), names);
}

template <NamedEnum E>
E read_enum(const TreeReader& reader) {
  std::vector<std::string> names;
  for (const auto& row : enum_names(E{})) names.emplace_back(row.name);
  return enum_names(E{})[reader.to_enumerator(names)].value;
}

}  // namespace detail

template <typename T>
Tree detail::Conversion<T>::write(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return Tree::of(value);
  } else if constexpr (std::is_integral_v<T>) {
    return Tree::of(static_cast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return Tree::of(static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return Tree::of(std::string_view(value));
  } else if constexpr (std::is_same_v<T, DType>) {
    return Tree::of(dtype_name(value));
  } else if constexpr (NamedEnum<T>) {
    return Tree::of(enum_name(value));
  } else if constexpr (detail::is_a<T, Field>) {
    return detail::field_tree(value, Tree::Role::kField);
  } else if constexpr (detail::is_a<T, Required>) {
    return detail::field_tree(value, Tree::Role::kRequired);
  } else if constexpr (detail::is_a<T, std::optional>) {
    if (value) return to_tree(*value);
    Tree tree;
    if constexpr (HasFields<typename T::value_type>)
      tree.prototype = detail::prototype<typename T::value_type>();
    return tree;
  } else if constexpr (detail::is_a<T, std::vector>) {
    Tree tree = Tree::list();
    for (const auto& item : value) tree.items.push_back(to_tree(item));
    return tree;
  } else if constexpr (detail::is_a<T, std::map>) {
    Tree tree = Tree::table();
    tree.is_map = true;
    for (const auto& [key, item] : value) tree.append(key, to_tree(item));
    return tree;
  } else if constexpr (detail::ConvertsItself<T>) {
    return value.to_tree();
  } else {
    detail::check_fields<T>();
    return detail::fields_tree(value);
  }
}

template <typename T>
void detail::Conversion<T>::read(const TreeReader& reader, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = reader.to_bool();
  } else if constexpr (std::is_integral_v<T>) {
    value =
        static_cast<T>(reader.to_int(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(reader.to_double());
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = reader.to_string();
  } else if constexpr (std::is_same_v<T, DType>) {
    value = reader.to_dtype();
  } else if constexpr (NamedEnum<T>) {
    value = detail::read_enum<T>(reader);
  } else if constexpr (detail::is_field<T>) {
    if (reader.unsets()) return value.reset();
    typename T::Value read = value.get_or({});
    from_tree(reader, read);
    value.set(std::move(read), reader.tree.provenance);
  } else if constexpr (detail::is_a<T, std::optional>) {
    if (reader.unsets()) return value.reset();
    typename T::value_type read = value.value_or(typename T::value_type{});
    from_tree(reader, read);
    value = std::move(read);
  } else if constexpr (detail::is_a<T, std::vector>) {
    const Tree list = reader.to_list();
    T read;
    for (size_t i = 0; i < list.items.size(); ++i) {
      typename T::value_type item{};
      from_tree(TreeReader{list.items[i], join_index(reader.path, i)}, item);
      read.push_back(std::move(item));
    }
    value = std::move(read);
  } else if constexpr (detail::is_a<T, std::map>) {
    const Tree table = reader.to_table();
    T read;
    for (size_t i = 0; i < table.items.size(); ++i) {
      // An existing element is modified: fields absent from the file keep their values.
      const auto old = value.find(table.keys[i]);
      typename T::mapped_type item = old == value.end() ? typename T::mapped_type{} : old->second;
      from_tree(TreeReader{table.items[i], join_path(reader.path, table.keys[i])}, item);
      read.emplace(table.keys[i], std::move(item));
    }
    value = std::move(read);
  } else if constexpr (detail::ConvertsItself<T>) {
    value.read(reader);
  } else {
    detail::check_fields<T>();
    detail::read_fields(reader, value);
  }
}

// Sets one value from text, with the type and checks of its field: `--set path=text`.
template <typename P>
void set_path(P& p, std::string_view path, std::string_view text) {
  Tree tree = to_tree(p);
  const std::string given = std::string(path) + "=" + std::string(text);
  put_at_path(tree, path, Tree::typed(text, {Origin::kCommandLine, {}, given}));
  from_tree(tree, p);
}

// Common member types are instantiated once, in convert.cc.
extern template struct detail::Conversion<bool>;
extern template struct detail::Conversion<int64_t>;
extern template struct detail::Conversion<double>;
extern template struct detail::Conversion<std::string>;
extern template struct detail::Conversion<std::vector<int64_t>>;
extern template struct detail::Conversion<std::vector<double>>;
extern template struct detail::Conversion<std::vector<std::string>>;
extern template struct detail::Conversion<Field<bool>>;
extern template struct detail::Conversion<Field<int64_t>>;
extern template struct detail::Conversion<Field<double>>;
extern template struct detail::Conversion<Field<std::string>>;
extern template struct detail::Conversion<Field<DType>>;
extern template struct detail::Conversion<Required<int64_t>>;
extern template struct detail::Conversion<Required<std::string>>;
extern template struct detail::Conversion<std::optional<int64_t>>;
extern template struct detail::Conversion<std::optional<double>>;

}  // namespace tessera
