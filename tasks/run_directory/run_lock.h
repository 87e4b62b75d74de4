// SPDX-License-Identifier: Apache-2.0
// One writer in a run's directory. The lock goes with the process, however that ends; readers
// (eval) take none.
#pragma once

#include <filesystem>

namespace tessera {

class RunLock {
 public:
  // Error that names the process which holds it. Whoever gets it clears the directory of files
  // that an earlier writer was killed over.
  explicit RunLock(const std::filesystem::path& run_directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace tessera
