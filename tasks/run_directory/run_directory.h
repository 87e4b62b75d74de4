// SPDX-License-Identifier: Apache-2.0
// The start of a run in its directory: create and lock it, set an earlier run aside for --restart,
// and write or compare the configuration. Process 0 acts for all processes.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/graph/graph.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/run_options.h"

namespace tessera {

// One writer in a run's directory. The lock goes with the process, however that ends; readers
// (eval) take none.
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

enum class Earlier { kKeep, kSetAside };

// For the one process that writes there; the lock is held while the result lives.
std::unique_ptr<RunLock> take_run_directory(const std::filesystem::path& directory,
                                            Earlier earlier);

// Checks that all processes see one directory: each host may have a local disk under the same name,
// and every host would then hold a part of each checkpoint. A collective call; process 0's
// directory exists. Error, in all processes, if some do not see what process 0 writes there.
// Network file systems may show a new file late: `patience` is how long to look for it.
void check_shared(const std::filesystem::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

// Whether a mode begins a run or goes on with it; the others only read.
bool writes_run(RunMode mode);

// The lock of process 0 of a run that is written; null for whoever writes nothing.
std::unique_ptr<RunLock> lock_run(const RunOptions& options, const ProcessGroup& processes);

// The text of hparams.toml, in a directory that all processes see. Whoever only reads leaves the
// directory as it is, may evaluate on other datasets, and gets "".
std::string prepare_run(const ExperimentConfig& config, const RunOptions& options,
                        ProcessGroup& processes);

// --dump_graph: writes the training step at one stage, as text and as a drawing. Null if not asked
// for. The options must outlive it.
std::function<void(std::string_view, const Graph&)> graph_dumper(const RunOptions& options,
                                                                 const ProcessGroup& processes);

// Devices that compute at once in the whole run: those of a process share its threads.
int64_t devices_at_once(const RunOptions& options, const ProcessGroup& processes);

}  // namespace tessera
