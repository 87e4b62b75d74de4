// SPDX-License-Identifier: Apache-2.0
// Text to print: safe on a terminal, whatever bytes a model generated; in lines; and as commands to
// be copied into a POSIX shell.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

inline constexpr size_t kTextColumns = 100;

// Returns lines of at most kTextColumns, broken at spaces, each indented and ended.
std::string wrapped(const std::string& text, size_t indent);

// Quotes a word of a command if necessary; in --name=VALUE only the value. In a word with control
// characters or invalid UTF-8 every such byte is an escape in $'…', which bash, zsh and POSIX of
// 2024 read.
std::string shell_quoted(const std::string& word);

// Joins the words, quoted, by spaces.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace tessera
