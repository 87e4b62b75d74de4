// SPDX-License-Identifier: Apache-2.0
// A text for runs that take at most a second.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temporary_directory.h"

namespace tessera {

// Writes text.txt to the folder.
inline void write_small_text(const std::filesystem::path& folder, int lines = 200) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  write_bytes(folder / "text.txt", text);
}

}  // namespace tessera
