// SPDX-License-Identifier: Apache-2.0
// The normalizer of a tokenizer.json, applied before pre-tokenization: Unicode normal forms, case,
// replacements. Bytes that are not UTF-8 are kept.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace tessera {

// An optional flag of a tokenizer.json; absent and null are equal.
inline bool flag_of(const Json& json, std::string_view name, bool fallback) {
  const Json* found = json.find(name);
  return found == nullptr || found->is_null() ? fallback : found->as_bool();
}

struct Normalizer {
  std::string description;  // Equal for equal effect; for fingerprints.
  // Returns the text itself if nothing changes, else writes to *storage. Sets *has_beginning to
  // false if the beginning is removed.
  std::function<std::string_view(std::string_view text, std::string* storage, bool* has_beginning)>
      apply;
};

// Parses the member "normalizer"; nullopt for none. Error that names an unsupported feature.
std::optional<Normalizer> make_normalizer(const Json& json);

}  // namespace tessera
