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
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"

namespace tessera {

// The lock of a run's single writer. The kernel releases it when the process ends. Readers (eval)
// take none.
class RunLock {
 public:
  // Error with the name of the process that holds it. The new owner removes temporary files left by
  // a killed writer.
  explicit RunLock(const std::filesystem::path& run_directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

enum class Earlier { kKeep, kSetAside };

// Creates and locks the directory; the lock is held while the result lives. Called by process 0.
std::unique_ptr<RunLock> take_run_directory(const std::filesystem::path& directory,
                                            Earlier earlier);

// Checks that all processes see one directory: each host may have a local disk under the same name,
// and every host would then hold a part of each checkpoint. A collective call; process 0's
// directory exists. Error, in all processes, if some do not see what process 0 writes there.
// Network file systems may show a new file late: `patience` is how long to look for it.
void check_shared(const std::filesystem::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

// Whether a mode starts or continues a run; all others only read.
bool writes_run(RunMode mode);

// The lock, in process 0 of a mode that writes; else null.
std::unique_ptr<RunLock> lock_run(const RunOptions& options, const ProcessGroup& processes);

// Checks that the directory is shared and writes or compares hparams.toml; returns its text in
// every process. A mode that only reads changes nothing, may use other datasets, and gets "".
std::string prepare_run(const ExperimentConfig& config, const RunOptions& options,
                        ProcessGroup& processes);

// --dump_graph: writes the training step at one stage as text, DOT and SVG. Null without the flag.
// `options` must outlive it.
std::function<void(std::string_view, const Graph&)> graph_dumper(const RunOptions& options,
                                                                 const ProcessGroup& processes);

// How many devices of the run compute at the same time, given that those of a process share its
// threads.
int64_t devices_at_once(const RunOptions& options, const ProcessGroup& processes);

}  // namespace tessera
