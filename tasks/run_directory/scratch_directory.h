// SPDX-License-Identifier: Apache-2.0
// Where the inputs of a dry run keep what they would freeze in the run's directory, which a dry run
// leaves as it is.
#pragma once

#include <filesystem>

#include "core/runtime/comm/process_group.h"

namespace tessera {

// A directory among the system's temporary files, removed with all that is in it. The processes of
// a host share one, as those of a run share the run's directory: the first of them makes it. What
// the run has frozen already is seen in it; an empty path: there is nothing yet.
class ScratchDirectory {
 public:
  ScratchDirectory(const std::filesystem::path& run_directory, ProcessGroup& processes);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  void remove();

  std::filesystem::path path_;
  bool is_own_ = false;  // Made by this process, which removes it.
};

}  // namespace tessera
