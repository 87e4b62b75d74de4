// SPDX-License-Identifier: Apache-2.0
// Texts that the parts of a plan share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr size_t kPlanColumns = 100;

// A named number of bytes.
struct NamedBytes {
  std::string name;
  int64_t bytes = 0;
};

// The beginning of a drawing of this size in pixels, whose text is dark on a light page and light
// on a dark one. It has no background of its own. `style` is CSS, `dark` replaces it on a dark
// page.
std::string svg_opening(double width, double height, int font_size, std::string_view style,
                        std::string_view dark = "");

// {"name": bytes, …}, in the order of the list.
std::string bytes_json(const std::vector<NamedBytes>& list);

// "1.25 GiB", with three digits.
std::string size_text(int64_t bytes);

inline double percent_of(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

// At most `width` columns; keeps the end of a path, which is the most specific part.
std::string ending(std::string text, size_t width);

}  // namespace tessera
