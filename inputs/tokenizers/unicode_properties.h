// SPDX-License-Identifier: Apache-2.0
// The properties of characters in Unicode 16, as in Hugging Face's tokenizers library, whatever
// version of Oniguruma and utf8proc is installed: scanners, patterns and other steps use these.
// They are general categories, POSIX classes and scripts; properties that tokenizers do not use,
// such as \p{XID_Start}, are those of the installed Oniguruma.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

struct OnigEncodingTypeST;

namespace tessera {

// Returns Oniguruma's UTF-8 with these properties in \p{…}, \w, \b and [[:alpha:]]. Made when used.
OnigEncodingTypeST* unicode_encoding();

using TakeRange = std::function<void(int32_t first, int32_t last)>;
// Visits the ranges of a property by its name in patterns, such as "Lu" or "White_Space", in order.
void for_each_range(std::string_view property, const TakeRange& take);

// Differences between steps of the library and the properties above, because they use other
// versions of Unicode.
void for_each_other_digit(const TakeRange& take);        // Digits: numbers, and these.
void for_each_other_punctuation(const TakeRange& take);  // Punctuation: \p{P} without these, …
int32_t lower_case_of(int32_t code);                     // Lowercase: Unicode 17.
bool is_normalized_by_steps(int32_t code);               // NFC, NFD, NFKC, NFKD: Unicode 9.

}  // namespace tessera
