// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms, in O(n log n) for any text: utf8proc's own ordering of marks is quadratic
// in a long run of them.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// The text itself where nothing changes; else what is written to *storage.
std::string_view to_normal_form(NormalForm form, std::string_view text, std::string* storage);

}  // namespace tessera
