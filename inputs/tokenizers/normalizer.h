// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json does to text before it is split: Unicode normal forms, case, replacements.
// Bytes that are no UTF-8 pass as they are.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace tessera {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // The text itself where nothing changes; else what is written to *storage. Where the beginning is
  // taken off, *has_beginning becomes false.
  virtual std::string_view apply(std::string_view text, std::string* storage,
                                 bool* has_beginning) const = 0;
  // Equal for equal effect; for fingerprints.
  virtual std::string description() const = 0;
};

// From the member "normalizer"; null for none. Error that names what is not supported.
std::unique_ptr<Normalizer> make_normalizer(const Json& json);

}  // namespace tessera
