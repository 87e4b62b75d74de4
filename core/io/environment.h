// SPDX-License-Identifier: Apache-2.0
// Reads what the environment of a user says: its variables, and paths as users write them.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Returns the value of a variable; "" if it is not set.
std::string environment(const char* name);

// Returns its value as a number that is not negative; `fallback` if it is not set or empty. Error
// for any other text; `what`: "seconds".
double environment_number(const char* name, double fallback, std::string_view what);

// Returns the path with ~ and ~/ replaced by the home directory, as a shell does only at the
// beginning of a word. Error for ~name, and for a URL such as gs://bucket/name, of which a local
// folder `gs:` would be made; `what` says in the message what the path is: "--output", "input
// path".
std::string user_path(std::string_view path, std::string_view what);

}  // namespace tessera
