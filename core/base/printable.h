// SPDX-License-Identifier: Apache-2.0
// Makes text safe to print on a terminal, whatever bytes a model generated.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Returns `text` with invalid UTF-8 bytes escaped as \xff, and with characters escaped as \u202e
// (beyond four digits as \U000e0041) that a terminal interprets instead of printing: control
// characters except newline and tab, and characters that change the direction of text or hide it.
std::string printable(std::string_view text);

// Returns `text` for a message: cut after 200 characters, with its length if it is longer.
std::string shortened(std::string_view text);

// Returns `text` with invalid UTF-8 bytes replaced by U+FFFD, for files that must be UTF-8.
std::string valid_utf8(std::string_view text);

// Returns `text` as the content of an element or attribute of HTML, XML or SVG: valid UTF-8, with <
// > & and quotation marks as entities.
std::string markup_text(std::string_view text);

}  // namespace tessera
