// SPDX-License-Identifier: Apache-2.0
#include "core/base/source_site.h"

#include <fmt/core.h>

namespace tessera {

std::string SourceSite::text() const { return known() ? fmt::format("{}:{}", file, line) : ""; }

}  // namespace tessera
