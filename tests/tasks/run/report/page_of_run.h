// SPDX-License-Identifier: Apache-2.0
// The data in a page of the report, as its script reads it.
#pragma once

#include <string>

#include "core/io/json.h"

namespace tessera {

inline Json data_of(const std::string& page) {
  const std::string open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return parse_json(page.substr(begin, page.find("</script>", begin) - begin), "page");
}

}  // namespace tessera
