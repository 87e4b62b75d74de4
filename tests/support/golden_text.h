// SPDX-License-Identifier: Apache-2.0
// Compares text with a committed file, line by line. Run with TESSERA_UPDATE_GOLDENS=1 to rewrite
// the files, then check the diff.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// "" if tests/golden/<name> contains this text; else the first difference, and how to update the
// file.
std::string golden_difference(std::string_view name, std::string_view text);

}  // namespace tessera
