// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/xml_text.h"

#include <array>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> kReferences = {
    {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};

// Replaces the reference at the beginning of `text`; returns its length, 0 if it is none.
size_t replace_reference(std::string_view text, std::string* out) {
  for (const auto& [reference, character] : kReferences) {
    if (!text.starts_with(reference)) continue;
    *out += character;
    return reference.size();
  }
  const size_t end = text.find(';');
  if (!text.starts_with("&#") || end == std::string_view::npos) return 0;
  const std::string digits(text.substr(2, end - 2));
  const bool is_hex = digits.starts_with('x');
  const long code = std::strtol(digits.c_str() + (is_hex ? 1 : 0), nullptr, is_hex ? 16 : 10);
  if (code <= 0 || code > 0x7f) return 0;  // Others come as UTF-8.
  *out += static_cast<char>(code);
  return end + 1;
}

}  // namespace

std::vector<std::string_view> xml_elements(std::string_view xml, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag), close = fmt::format("</{}>", tag);
  std::vector<std::string_view> elements;
  for (size_t at = 0;;) {
    const size_t begin = xml.find(open, at);
    const size_t end = begin == std::string_view::npos ? begin : xml.find(close, begin);
    if (end == std::string_view::npos) return elements;
    elements.push_back(xml.substr(begin + open.size(), end - begin - open.size()));
    at = end + close.size();
  }
}

std::string xml_text(std::string_view xml, std::string_view tag) {
  const std::vector<std::string_view> elements = xml_elements(xml, tag);
  std::string text;
  for (std::string_view rest = elements.empty() ? "" : elements[0]; !rest.empty();) {
    const size_t used = rest[0] == '&' ? replace_reference(rest, &text) : 0;
    if (used == 0) text += rest[0];
    rest.remove_prefix(used == 0 ? 1 : used);
  }
  return text;
}

std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    std::string_view part(&c, 1);
    for (const auto& [reference, character] : kReferences)
      if (c == character) part = reference;
    escaped += part;
  }
  return escaped;
}

}  // namespace tessera
