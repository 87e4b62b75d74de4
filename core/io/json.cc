// SPDX-License-Identifier: Apache-2.0
#include "core/io/json.h"

#include <openssl/evp.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/base/error.h"
#include "core/io/lenient_json.h"

namespace tessera {
namespace {

constexpr size_t kMostLevels = 256;
constexpr size_t kLongestPlace = 200;  // Limits the memory of places with long nested keys.

// Joins places: "config.json: a" and "b" to "config.json: a.b"; at level 0, "config.json" and "b"
// to "config.json: b".
std::string member_place(const std::string& where, std::string_view name, size_t level) {
  if (where.size() > kLongestPlace) return where;
  return fmt::format("{}{}{}", where, level == 0 ? ": " : ".", name.substr(0, kLongestPlace));
}

std::string element_place(const std::string& where, size_t index, size_t level) {
  if (where.size() > kLongestPlace) return where;
  return fmt::format("{}{}[{}]", where, level == 0 ? ": " : "", index);
}

}  // namespace

// Converts the tape of the parser to values.
class JsonReader {
 public:
  // `lenient`: the document was rewritten by lenient_json.
  explicit JsonReader(bool lenient) : is_lenient_(lenient) {}

  Json read(simdjson::dom::element element, std::string where, size_t level) const {
    using simdjson::dom::element_type;
    Json json;
    json.where_ = std::move(where);
    switch (element.type()) {
      case element_type::ARRAY:
        json.value_ = read_array(element.get_array(), json.where_, level);
        break;
      case element_type::OBJECT:
        json.value_ = read_object(element.get_object(), json.where_, level);
        break;
      case element_type::INT64:
        json.value_ = int64_t{element.get_int64()};
        break;
      case element_type::UINT64:
        json.value_ = static_cast<double>(uint64_t{element.get_uint64()});
        break;
      case element_type::DOUBLE:
        json.value_ = double{element.get_double()};
        break;
      case element_type::STRING:
        read_string(element.get_string(), &json);
        break;
      case element_type::BOOL:
        json.value_ = bool{element.get_bool()};
        break;
      case element_type::NULL_VALUE:
        break;
    }
    return json;
  }

 private:
  void read_string(std::string_view text, Json* json) const {
    if (is_lenient_ && text.starts_with(kNotJson))
      json->value_ = Json::NotJson{std::string(text.substr(kNotJson.size()))};
    else
      json->value_ = std::string(text);
  }
  JsonArray read_array(simdjson::dom::array array, const std::string& where, size_t level) const {
    JsonArray values;
    for (const simdjson::dom::element each : array)
      values.push_back(read(each, element_place(where, values.size(), level), level + 1));
    return values;
  }
  JsonObject read_object(simdjson::dom::object object, const std::string& where,
                         size_t level) const {
    JsonObject members;
    for (const auto& [name, value] : object)
      members.emplace_back(name, read(value, member_place(where, name, level), level + 1));
    return members;
  }

  bool is_lenient_;
};

void Json::fail_kind(std::string_view expected) const {
  constexpr std::array<std::string_view, 7> kKinds = {
      // Ordered like the alternatives of value_.
      "null", "a boolean", "a whole number", "a number", "a string", "a list", "an object"};
  if (const NotJson* value = std::get_if<NotJson>(&value_))
    fail("{} is {}, expected {}", where_, value->text, expected);
  fail("{} is {}, expected {}", where_, kKinds[value_.index()], expected);
}

const Json* Json::find(std::string_view name) const {
  const JsonObject& members = as_object();
  const auto found = std::find_if(members.rbegin(), members.rend(),
                                  [&](const auto& member) { return member.first == name; });
  return found == members.rend() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view name) const {
  if (const Json* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const auto& [key, value] : as_object()) names.push_back(key);
  fail("{} lacks '{}'{}", where_, name, did_you_mean(name, names));
}

Json parse_json(std::string_view text, const std::string& where) {
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(text.size(), 1), kMostLevels) != simdjson::SUCCESS)
    fail("{}: {} bytes of JSON do not fit in memory", where, text.size());
  simdjson::dom::element root;
  simdjson::error_code error = parser.parse(simdjson::padded_string(text)).get(root);
  std::optional<std::string> lenient;
  if (error != simdjson::SUCCESS && error != simdjson::DEPTH_ERROR)
    lenient = lenient_json(text, Surrogates::kRefuse);
  if (lenient) error = parser.parse(simdjson::padded_string(*lenient)).get(root);
  if (error == simdjson::DEPTH_ERROR)
    fail("{}: JSON nested more than {} levels deep", where, kMostLevels);
  if (error != simdjson::SUCCESS)
    fail("{}: not valid JSON: {}", where, simdjson::error_message(error));
  return JsonReader(lenient.has_value()).read(root, where, 0);
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

JsonMember::JsonMember(std::string_view name, double number)
    : key(name), json(std::isfinite(number) ? fmt::format("{}", number) : "null") {}

JsonLine& JsonLine::add_raw(std::string_view key, std::string_view json) {
  members_ += fmt::format("{}{}: {}", members_.empty() ? "" : ", ", json_quoted(key), json);
  return *this;
}

std::string json_object(std::initializer_list<JsonMember> members) {
  JsonLine line;
  for (const JsonMember& member : members) line.add_raw(member.key, member.json);
  return line.text();
}

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // It writes a '\0' at the end.
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

}  // namespace tessera
