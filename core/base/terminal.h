// SPDX-License-Identifier: Apache-2.0
// Standard output and standard error as a terminal sees them: names, files and flags in a message
// cannot control it.
#pragma once

#include <ostream>
#include <string_view>

namespace tessera {

// From now on std::cout and std::cerr escape control characters and invalid UTF-8 (printable).
void escape_standard_streams();

// Whether a line can be rewritten there: on a terminal that is not "dumb". mpirun gives each
// process a pseudo-terminal and copies what is written to it, so there it cannot.
bool rewrites_lines(int descriptor);

// Clears the line of such a terminal.
inline constexpr std::string_view kClearLine = "\r\x1b[K";
void clear_line(std::ostream& out);  // Also if the stream escapes.

// Prints a line on standard error. It does not throw where that is closed, as fmt::print does.
void print_error(std::string_view line);

}  // namespace tessera
