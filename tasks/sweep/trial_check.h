// SPDX-License-Identifier: Apache-2.0
// Checks each trial of a sweep before the first one starts: whether it could start, how far its run
// is, and what it logs. Nothing is allocated or written.
#pragma once

#include <string>
#include <vector>

#include "tasks/run/run_setting.h"
#include "tasks/sweep/trial_record.h"

namespace tessera {

// Error for whatever would make the run in setting.job_log_dir fail before its first step, except
// missing data: a mesh that needs another number of devices than setting.devices (0: any), a model
// that cannot be built on it, a directory with a run of another configuration. One
// device is enough, which is asked about its kernels. Sets the state of the trial by the files of
// the run, and its reason. It is complete if the run has done all steps of this configuration.
void check_trial(const RunContext& context, TrialRecord* record);

// The keys of metrics.jsonl that a run writes: those of evaluation, then those of training.
std::vector<std::string> logged_metrics(const RunContext& context);

}  // namespace tessera
