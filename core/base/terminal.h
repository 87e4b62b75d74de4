// SPDX-License-Identifier: Apache-2.0
// Protects standard output and standard error: names, files and flags in a message cannot control
// the terminal.
#pragma once

#include <ostream>
#include <string_view>

namespace tessera {

// Makes std::cout and std::cerr escape control characters and invalid UTF-8 (printable) from now
// on.
void escape_standard_streams();

// Returns whether a line can be rewritten there: on a terminal that is not "dumb". It cannot under
// mpirun, which gives each process a pseudo-terminal and copies what is written to it.
bool rewrites_lines(int descriptor);

// Clears the line of such a terminal.
inline constexpr std::string_view kClearLine = "\r\x1b[K";
void clear_line(std::ostream& out);  // Also if the stream escapes.

// Prints a line on standard error. Unlike fmt::print, it does not throw if that is closed.
void print_error(std::string_view line);

}  // namespace tessera
