// SPDX-License-Identifier: Apache-2.0
// One JSON object on one line, written member by member. Not a reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class JsonLine {
 public:
  // Numbers read back exactly; what is no finite number is null.
  JsonLine& add(std::string_view key, double value);
  JsonLine& add(std::string_view key, int64_t value);
  JsonLine& add(std::string_view key, std::string_view text);
  JsonLine& add_raw(std::string_view key, std::string_view json);
  std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// A JSON string literal.
std::string json_quoted(std::string_view text);

}  // namespace tessera
