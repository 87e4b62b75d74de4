// SPDX-License-Identifier: Apache-2.0
// Text that is compared with a committed file, line by line. Run with TESSERA_UPDATE_GOLDENS=1 to
// rewrite the files; then read the diff.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// "" if tests/golden/<name> holds this text; else what differs first, and how to update.
std::string golden_difference(std::string_view name, std::string_view text);

}  // namespace tessera
