// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/text.h"

#include <array>

#include <fmt/format.h>

#include "core/io/json.h"

namespace tessera {

std::string bytes_json(const std::vector<NamedBytes>& list) {
  JsonLine json;
  for (const auto& [name, bytes] : list) json.add(name, bytes);
  return json.text();
}

std::string svg_opening(double width, double height, int font_size, std::string_view style,
                        std::string_view dark) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-size=\"{2}\" "
      "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n"
      "<style>text{{fill:#33333b}}{3}"
      "@media (prefers-color-scheme:dark){{text{{fill:#d8d8e0}}{4}}}</style>\n",
      width, height, font_size, style, dark);
}

std::string size_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  return fmt::format("{:.{}f} {:<3}", value, digits, kUnits[unit]);
}

std::string ending(std::string text, size_t width) {
  if (text.size() <= width) return text;
  const size_t kept = width > 2 ? width - 2 : 0;
  return ".." + text.substr(text.size() - kept);
}

}  // namespace tessera
