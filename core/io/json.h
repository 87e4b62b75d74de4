// SPDX-License-Identifier: Apache-2.0
// JSON documents, read whole: configurations, tokenizers, headers of files of other tools. They are
// untrusted, so depth and numbers are checked. And json_object() and JsonLine, which write objects
// on one line, json_list, and base64. (inputs/ reads the lines of text corpora itself.)
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

namespace tessera {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // In the order of the file.

// A value. Accessors of a value of another kind throw an Error with its place in the document:
// "config.json: n_embd is a string, expected a whole number".
class Json {
 public:
  Json() = default;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<JsonArray>(value_); }
  bool is_object() const { return std::holds_alternative<JsonObject>(value_); }

  bool as_bool() const { return get<bool>("a boolean"); }
  int64_t as_integer() const { return get<int64_t>("a whole number"); }
  double as_number() const {
    return is_integer() ? static_cast<double>(as_integer()) : get<double>("a number");
  }
  const std::string& as_string() const { return get<std::string>("a string"); }
  const JsonArray& as_array() const { return get<JsonArray>("a list"); }
  const JsonObject& as_object() const { return get<JsonObject>("an object"); }

  // Returns the last member of this name of an object, as in Python; nullptr if it has none.
  const Json* find(std::string_view name) const;
  // Returns that member; Error if there is none.
  const Json& at(std::string_view name) const;
  // Returns the place for messages: "config.json: architectures[0]".
  const std::string& where() const { return where_; }

 private:
  friend class JsonReader;
  template <typename T>
  const T& get(std::string_view expected) const {
    if (const T* value = std::get_if<T>(&value_)) return *value;
    fail_kind(expected);
  }
  [[noreturn]] void fail_kind(std::string_view expected) const;

  struct NotJson {
    std::string text;
  };

  std::variant<std::monostate, bool, int64_t, double, std::string, JsonArray, JsonObject, NotJson>
      value_;
  std::string where_;
};

// Parses JSON. `where` names the document in messages, such as its path. Error beyond 256 levels of
// nesting. NaN, Infinity and numbers beyond f64 are values of no kind, so only their use is an
// error.
Json parse_json(std::string_view text, const std::string& where);

// Returns a JSON string literal.
std::string json_quoted(std::string_view text);

// JSON text as the value of a member.
struct RawJson {
  std::string text;
};

// A member of an object: {"seconds", 1.5}. Numbers read back exactly; NaN and infinities are
// written as null.
struct JsonMember {
  JsonMember(std::string_view name, double number);
  JsonMember(std::string_view name, std::string_view text) : key(name), json(json_quoted(text)) {}
  JsonMember(std::string_view name, RawJson raw) : key(name), json(std::move(raw.text)) {}
  JsonMember(std::string_view name, std::nullptr_t) : key(name), json("null") {}
  JsonMember(std::string_view name, std::integral auto number)
      : key(name), json(fmt::to_string(number)) {}

  std::string_view key;
  std::string json;
};

// One object on one line.
std::string json_object(std::initializer_list<JsonMember> members);

// An object on one line that is written member by member.
class JsonLine {
 public:
  template <typename Value>
  JsonLine& add(std::string_view key, const Value& value) {
    return add_raw(key, JsonMember(key, value).json);
  }
  JsonLine& add_raw(std::string_view key, std::string_view json);
  std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// Writes "[1, 2]": numbers, JSON texts, or the JSON that `text` makes of each element.
template <typename List, typename Text = std::identity>
std::string json_list(const List& list, const Text& text = {}, std::string_view between = ", ") {
  std::string all;
  for (const auto& item : list)
    all += fmt::format("{}{}", all.empty() ? std::string_view() : between, std::invoke(text, item));
  return "[" + all + "]";
}

// Encodes as RFC 4648 defines.
std::string base64(std::string_view bytes);

}  // namespace tessera
