// SPDX-License-Identifier: Apache-2.0
// Reads environment variables.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Returns the value of a variable; "" if it is not set.
std::string environment(const char* name);

// Returns its value as a number that is not negative; `fallback` if it is not set or empty. Error
// for any other text; `what`: "seconds".
double environment_number(const char* name, double fallback, std::string_view what);

}  // namespace tessera
