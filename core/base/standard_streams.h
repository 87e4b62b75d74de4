// SPDX-License-Identifier: Apache-2.0
// Standard input, output and error of a program that goes on when nobody reads what it prints.
#pragma once

#include <string>

namespace tessera {

// To be called first in main. A pipe that nobody reads, and a file at its size limit, are from then
// on errors of the write (EPIPE, EFBIG) and end no program by a signal (SIGPIPE, SIGXFSZ). A closed
// standard descriptor is taken by one that cannot be used, so that no file that is opened later
// gets its number and what is printed.
void prepare_standard_streams();

// Writes out what std::cout and stdout hold. Returns why some of it is lost, "" if nothing is. A
// reader that left (`| head -1`) has all that it wanted: that is no loss.
std::string flush_standard_output();

}  // namespace tessera
