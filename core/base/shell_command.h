// SPDX-License-Identifier: Apache-2.0
// Formats commands that messages print to be copied into a POSIX shell.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// Quotes a word of a command if necessary; in --name=VALUE only the value. In a word with control
// characters or invalid UTF-8 every such byte is an escape in $'…', which bash, zsh and POSIX of
// 2024 read.
std::string shell_quoted(const std::string& word);

// Joins the words, quoted, by spaces.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace tessera
