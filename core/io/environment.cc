// SPDX-License-Identifier: Apache-2.0
#include "core/io/environment.h"

#include <cstdlib>

#include "core/base/error.h"

namespace tessera {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

double environment_number(const char* name, double fallback, std::string_view what) {
  const std::string text = environment(name);
  if (text.empty()) return fallback;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(number >= 0) || number > 9e18)
    fail("{}={}: expected a number of {}, such as 300 or 20e9", name, text, what);
  return number;
}

}  // namespace tessera
