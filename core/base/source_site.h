// SPDX-License-Identifier: Apache-2.0
// A place in a user's source: where a field was set or an op was called. Errors and dumps cite it.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

namespace tessera {

struct SourceSite {
  const char* file = "";  // Static storage, from std::source_location.
  uint32_t line = 0;

  // Unknown for a line of the C++ library, which calls our constructors in its own: a pair of a
  // name and a template makes the template in a header of the library, and not where the user wrote
  // it.
  static SourceSite current(std::source_location where = std::source_location::current());
  bool known() const { return line != 0; }
  std::string text() const;  // "layers/feed_forward/linear.cc:41"; "" if unknown.
};

}  // namespace tessera
