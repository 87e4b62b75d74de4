// SPDX-License-Identifier: Apache-2.0
// Commands that messages print to be copied into a POSIX shell.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// A word of a command, quoted if necessary; of --name=VALUE only the value. Of a word with control
// characters or invalid UTF-8 every such byte is an escape in $'…', which bash, zsh and POSIX of
// 2024 read.
std::string shell_quoted(const std::string& word);

// The words, quoted, with spaces between.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace tessera
