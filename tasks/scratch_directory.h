// SPDX-License-Identifier: Apache-2.0
// Where the inputs of a dry run keep what they would freeze in the run's directory, which a dry run
// leaves as it is.
#pragma once

#include <filesystem>

namespace tessera {

// A directory among the system's temporary files, removed with all that is in it. What the run has
// frozen already is seen in it; an empty path: there is nothing yet.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(const std::filesystem::path& run_directory);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera
