// SPDX-License-Identifier: Apache-2.0
// Compresses bytes in memory, for tests of readers.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string gzip(std::string_view bytes);  // One member.
// One frame, with a checksum. With `window_log` it states a window of that size, however short it
// is, like `zstd --long` does for data from a pipe.
std::string zstd(std::string_view bytes, int window_log = 0);

}  // namespace tessera
