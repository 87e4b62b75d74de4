// SPDX-License-Identifier: Apache-2.0
// How the processes of a run take its directory and settle its configuration before anything is
// built. Process 0 acts for all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/graph/graph.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/modes/trainer.h"
#include "tasks/run_directory/run_lock.h"

namespace tessera {

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
