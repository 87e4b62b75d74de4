// SPDX-License-Identifier: Apache-2.0
// Optional switches in the JSON of tokenizers: absent and null mean the same.
#pragma once

#include <string_view>

#include "core/io/json.h"

namespace tessera {

inline bool flag_of(const Json& json, std::string_view name, bool fallback) {
  const Json* found = json.find(name);
  return found == nullptr || found->is_null() ? fallback : found->as_bool();
}

}  // namespace tessera
