// SPDX-License-Identifier: Apache-2.0
// Compresses bytes in memory, for tests of readers.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string gzip(std::string_view bytes);  // One member.
std::string zstd(std::string_view bytes);  // One frame, with a checksum.

}  // namespace tessera
