// SPDX-License-Identifier: Apache-2.0
// A file of lines to which several processes add at any time, and may be killed over it.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera {

// Adds a line, whole. What a writer that was killed left of one is cut off first. The file is made,
// and its directory; it is locked (flock) only while the line is written.
void append_shared_line(const std::filesystem::path& path, std::string_view line);

}  // namespace tessera
