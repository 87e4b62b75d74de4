// SPDX-License-Identifier: Apache-2.0
// A temporary directory for what the inputs of a dry run would otherwise write to the run's
// directory.
#pragma once

#include <filesystem>

#include "core/runtime/comm/process_group.h"

namespace tessera {

// Removed with its contents at the end. The processes of a host share one, which the first of them
// creates. It links to the corpus snapshot in `run_directory`, if that is not empty and has one.
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
  bool is_own_ = false;  // Created by this process.
};

}  // namespace tessera
