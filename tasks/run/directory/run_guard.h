// SPDX-License-Identifier: Apache-2.0
// Holds the directory of a run, so that the run notices when it is moved, removed or replaced, or
// when another run takes its lock, and never writes to another directory of the same name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// The directory is no longer the run's. Nothing may be written there, not even this error.
class DirectoryLost : public Error {
 public:
  using Error::Error;
};

class RunGuard {
 public:
  // `directory` exists. `lock` is null in processes other than process 0, and outlives the guard.
  // Messages call the directory `name`; "": by its path.
  RunGuard(std::filesystem::path directory, const RunLock* lock, std::string name = "");

  // A path to the directory by its descriptor, for all writes; shown() is for messages.
  const std::filesystem::path& held() const { return held_.path(); }
  std::string shown(std::string text) const;  // With the directory's name in place of paths.

  enum class Finding {
    kNone,
    kSaveAndStop,  // Moved: the directory is still the run's.
    kStop,         // Removed, or another run may write to it: a save would be lost or do harm.
  };
  // Looks at the directory and the lock: a few system calls. `damage` is that of the log
  // (RunLog::damage).
  Finding look(std::string_view damage = "");
  // Error unless look() finds nothing: for a single write.
  void expect_in_place();
  // Ends a run after a process found something: calls `save` if the run can still be saved, and
  // throws the same error in all processes. A collective call.
  [[noreturn]] void leave(ProcessGroup& processes, int64_t step, const std::function<void()>& save);

 private:
  Finding look_at_directory();

  std::filesystem::path directory_;
  std::string name_;
  HeldDirectory held_;
  const RunLock* lock_;
  Finding finding_ = Finding::kNone;  // The result of the last look(),
  std::string what_;                  // in words.
};

// Makes the guard of a mode that writes. Null in a dry run.
std::unique_ptr<RunGuard> guard_run(const RunSetting& setting, const RunLock* lock);

}  // namespace tessera
