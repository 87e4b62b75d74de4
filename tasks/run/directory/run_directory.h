// SPDX-License-Identifier: Apache-2.0
// The start of a run in its directory: create and lock it, set an earlier run aside for --restart,
// and write or compare the configuration. Process 0 acts for all processes. A dry run gets a
// temporary directory instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

// The lock of a run's single writer. The kernel releases it when the process ends. Readers (eval)
// take none. On a file system without locks a note says so, and is_in() notices a second writer.
class RunLock {
 public:
  // Error with the name of the process that holds it. The new owner removes temporary files left by
  // a killed writer.
  explicit RunLock(const std::filesystem::path& run_directory);

  // Whether the lock file in this directory is still the one that this process locked.
  bool is_in(const std::filesystem::path& run_directory) const;

 private:
  FileDescriptor file_;
  bool is_locked_ = true;  // false: its file system has no locks.
  std::string owner_;      // The contents of the file.
};

// Checks that all processes see one directory: each host may have a local disk under the same name,
// and every host would then hold a part of each checkpoint. A collective call; process 0's
// directory exists. Error, in all processes, if some do not see what process 0 writes there.
// Network file systems may show a new file late: `patience` is how long to look for it.
void check_shared(const std::filesystem::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

std::string host_name();
std::string new_token();  // Random.
// The rank of the first process on this process's host.
int leader_of_host(const ProcessGroup& processes);

// For a mode that writes: creates and locks the directory in process 0, and sets an earlier run
// aside for --restart. Null in other processes, and in a dry run.
std::unique_ptr<RunLock> lock_run(const RunSetting& setting, const ProcessGroup& processes);

// For a mode that writes: checks that the directory is shared and writes or compares hparams.toml;
// returns its text in every process.
std::string prepare_run(const ExperimentConfig& config, const RunSetting& setting,
                        ProcessGroup& processes);

// A new directory among the temporary files of the system. It is removed with its contents at the
// end.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::string_view name);  // What its name begins with.
  ~ScratchDirectory();
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;  // Neither copied nor moved.

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Calls `make` with the setting and its input_directory, which lives as long as the run. In a dry
// run that is a temporary directory, for what the inputs would otherwise write to the run's
// directory. The processes of a host share one, which the first of them creates.
std::unique_ptr<BaseRun> make_run(
    const RunSetting& setting, ProcessGroup& processes,
    const std::function<std::unique_ptr<BaseRun>(const RunSetting&)>& make);

// The directory is no longer the run's. Nothing may be written there, not even this error.
class DirectoryLost : public Error {
 public:
  using Error::Error;
};

// Holds the directory of a run, so that the run notices when it is moved, removed or replaced, or
// when another run takes its lock, and never writes to another directory of the same name.
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
