// SPDX-License-Identifier: Apache-2.0
// Text that is safe to show on a terminal, whatever bytes a model came up with.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// `text` with bytes that are not UTF-8 as \xff, and as \u202e what a terminal would act on instead
// of showing it: control characters (newlines and tabs excepted) and those that turn or hide text.
std::string printable(std::string_view text);

// `text` with bytes that are no UTF-8 as U+FFFD, for files that must be UTF-8.
std::string valid_utf8(std::string_view text);

}  // namespace tessera
