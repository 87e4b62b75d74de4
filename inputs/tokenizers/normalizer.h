// SPDX-License-Identifier: Apache-2.0
// The normalizer of a tokenizer.json, applied before pre-tokenization: Unicode normal forms, case,
// replacements. Bytes that are not UTF-8 are kept.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace tessera {

inline bool flag_of(const Json& json, std::string_view name, bool fallback) {
  const Json* found = json.find(name);
  return found == nullptr || found->is_null() ? fallback : found->as_bool();
}

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Returns the text itself if nothing changes, else writes to *storage. Sets *has_beginning to
  // false if the beginning is removed.
  virtual std::string_view apply(std::string_view text, std::string* storage,
                                 bool* has_beginning) const = 0;
  // Equal for equal effect; for fingerprints.
  virtual std::string description() const = 0;
};

// From the member "normalizer"; null for none. Error that names an unsupported feature.
std::unique_ptr<Normalizer> make_normalizer(const Json& json);

}  // namespace tessera
