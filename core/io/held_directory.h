// SPDX-License-Identifier: Apache-2.0
// A directory that is held open by its descriptor: files that are written by its path() are in this
// directory even after it is moved, or replaced by another directory or a link of its name.
#pragma once

#include <filesystem>

namespace tessera {

class HeldDirectory {
 public:
  explicit HeldDirectory(const std::filesystem::path& directory);  // Error if it does not open.
  ~HeldDirectory();
  HeldDirectory(const HeldDirectory&) = delete;
  HeldDirectory& operator=(const HeldDirectory&) = delete;

  int descriptor() const { return descriptor_; }
  // Returns "/proc/self/fd/<descriptor>", or the directory's own path where there is no /proc.
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

}  // namespace tessera
