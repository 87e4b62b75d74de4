// SPDX-License-Identifier: Apache-2.0
// A directory for what is needed only while it lives; it goes with all it holds.
#pragma once

#include <filesystem>

namespace tessera {

class ScratchDirectory {
 public:
  ScratchDirectory();  // In the system's place for such; Error if it cannot be made.
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera
