// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_line.h"

#include <cmath>

#include <fmt/format.h>

namespace tessera {

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

JsonLine& JsonLine::add_raw(std::string_view key, std::string_view json) {
  members_ += fmt::format("{}{}: {}", members_.empty() ? "" : ", ", json_quoted(key), json);
  return *this;
}

JsonLine& JsonLine::add(std::string_view key, double value) {
  return add_raw(key, std::isfinite(value) ? fmt::format("{}", value) : "null");
}

JsonLine& JsonLine::add(std::string_view key, int64_t value) {
  return add_raw(key, std::to_string(value));
}

JsonLine& JsonLine::add(std::string_view key, std::string_view text) {
  return add_raw(key, json_quoted(text));
}

}  // namespace tessera
