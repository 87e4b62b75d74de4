// SPDX-License-Identifier: Apache-2.0
// --mode=selfcheck: checks this machine.
#include "tasks/run/modes/selfcheck.h"

#include "core/base/process.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"

namespace tessera {
namespace {

struct Selfcheck {
  static constexpr CommandInfo kInfo{.mode = "selfcheck",
                                     .summary = "check all kernels on this machine; a minute"};
  KindFlags kind;
  PluginFlags plugins;
  FIELDS(kind, plugins)

  void check() const { kind.check(); }

  // Each process checks its own machine; the first problem of any is reported.
  CommandResult run(const CommandContext& context) const {
    const DeviceKind& device = find_device(kind.kind(), plugins.folders());
    const int threads = thread_budget(kind, context.processes);
    const std::string problem =
        selfcheck({.make_device =
                       [&](int count) {
                         const int place = local_rank(context.processes.transport().get());
                         return std::move(device.make_devices(1, count, place)[0]);
                       },
                   .threads = threads > 0 ? threads : usable_processors(),
                   .report = [&](const std::string& text) { context.out << text << std::endl; }});
    if (problem.empty()) return {};
    return {kFailed, "selfcheck: " + problem};
  }
};

}  // namespace

std::unique_ptr<Command> selfcheck_command() { return command_of<Selfcheck>(); }

}  // namespace tessera
