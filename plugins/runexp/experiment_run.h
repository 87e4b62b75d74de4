// SPDX-License-Identifier: Apache-2.0
// The functions that all commands on an experiment share: they configure it, check that all
// processes have the same configuration, and run it on devices.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/flags/flags.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/configure.h"
#include "plugins/runexp/command.h"
#include "plugins/runexp/flag_groups.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// The experiment with the settings of the flags, then these.
ConfiguredExperiment configured_by(const ExperimentFlags& flags,
                                   const std::vector<std::string>& sets = {});

// Configures the experiment and checks that the other processes have the same configuration.
ConfiguredExperiment configured_together(const ExperimentFlags& flags,
                                         const CommandContext& context);

// Whether all processes of a run were started with the same flags, configuration and code. If not,
// each would compute a part of another step. What a host may have in another place is not compared:
// the folders of data, plugins and the run, and the number of threads.
//
// Collective calls. Error, the same in all processes, that names the first process that differs
// from process 0, and the flag or field.
void compare_flags(const std::vector<GivenFlag>& given, ProcessGroup& processes);
void compare_configurations(const ConfiguredExperiment& configured, ProcessGroup& processes);

// "./runexp --exp=…" with these flags, which trains the experiment.
std::string training_command(const ConfiguredExperiment& configured, RunFlags flags);

// The message for a user who starts an experiment without its data: what is missing, where it was
// expected, and the commands that lead to a run. nullopt if nothing is missing. `num_devices`: of
// the whole run; the last command asks for a mesh of that size.
std::optional<std::string> missing_data_message(const ConfiguredExperiment& configured,
                                                const RunFlags& flags, int64_t num_devices);

// The default of --threads: the processors this process may use, divided among the host's processes
// that are not bound to their own. 0: all.
int thread_budget(const KindFlags& flags, const ProcessGroup& processes);

// How a command runs an experiment.
struct ExperimentJob {
  const RunFlags& flags;
  ResumeFlags resume = {};
  bool reads_data = false;                   // Without the data, prints how to make them.
  bool trains = false;                       // A failure is written to the run's directory.
  bool writes = false;                       // Needs the lock of the run's directory.
  bool fits_mesh = false;                    // Without --devices: as many as the mesh needs.
  bool advises_mesh = false;                 // An error says which mesh would suit the model.
  bool plans = false;                        // One device is enough, to ask about its kernels:
  std::optional<Hardware> planned_for = {};  // one like this.
};

struct JobParts : RunContext {
  const ConfiguredExperiment& configured;
};

// Configures the experiment, makes its devices and runs what `make` returns.
CommandResult run_experiment(const ExperimentJob& job, const CommandContext& context,
                             const std::function<std::unique_ptr<BaseRun>(const JobParts&)>& make);

// Makes the run of a mode from its options (train_run and the like).
template <typename Options>
using MakeRunOf = std::unique_ptr<BaseRun> (*)(const RunContext&, const Options&);
template <typename Options>
CommandResult run_mode(const ExperimentJob& job, const CommandContext& context,
                       MakeRunOf<Options> make, const std::type_identity_t<Options>& options) {
  return run_experiment(job, context, [&](const JobParts& parts) { return make(parts, options); });
}

}  // namespace tessera
