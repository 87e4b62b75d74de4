// SPDX-License-Identifier: Apache-2.0
// JSON documents read whole: configurations, tokenizers, headers of other tools' files. They come
// from anywhere, so depth and numbers are checked. Lines of a corpus are read elsewhere (inputs/),
// and metrics are written by json_line.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // In the order of the file.

// A value. Accessors throw Error that says where in the document it is, what is there and what was
// expected: "config.json: n_embd is a string, expected a whole number".
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

  bool as_bool() const;
  int64_t as_integer() const;
  double as_number() const;
  const std::string& as_string() const;
  const JsonArray& as_array() const;
  const JsonObject& as_object() const;

  // Of an object: the member, or null if there is none (the first of several of that name).
  const Json* find(std::string_view name) const;
  // The same, but it must be there.
  const Json& at(std::string_view name) const;
  // "config.json: architectures[0]"; what messages begin with.
  const std::string& where() const { return where_; }

 private:
  friend class JsonReader;
  std::variant<std::monostate, bool, int64_t, double, std::string, JsonArray, JsonObject> value_;
  std::string where_;
};

// `where` is what messages call the document, such as its path. At most 256 levels deep.
Json parse_json(std::string_view text, const std::string& where);

}  // namespace tessera
