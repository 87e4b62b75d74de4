// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/runexp.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/launch.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/log/run_log.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {
namespace {

// How long a failed process waits for the others to learn of it before it ends them.
constexpr std::chrono::seconds kFailurePatience{2};

CommandResult catch_errors(const std::function<CommandResult()>& action) {
  try {
    return action();
  } catch (const Error& error) {
    return {kBadUsage, error.what()};
  } catch (const std::filesystem::filesystem_error& error) {
    return {kBadUsage, error_text(error)};
  } catch (const std::exception& error) {
    return {kFailed, error_text(error)};
  }
}

// Whether this process is the first with its error, which the others do not repeat.
bool is_first_with_its_error(const SharedFailure& failure, int rank) {
  const std::string& own = failure.errors[static_cast<size_t>(rank)];
  return !own.empty() &&
         std::find(failure.errors.begin(), failure.errors.end(), own) - failure.errors.begin() ==
             rank;
}

// All processes return one code, and each error is printed once.
int end_together(CommandResult ending, ProcessGroup& processes, std::ostream& errors) {
  if (ending.error.empty()) {
    const CommandResult agreed = catch_errors([&]() -> CommandResult {
      return {static_cast<int>(processes.all_reduce_max(ending.exit_code, "the end of the run")),
              ""};
    });
    if (agreed.error.empty()) return agreed.exit_code;
    ending.exit_code = kFailed;
    ending.error = agreed.error;
  }
  const auto failure = processes.fail_together(ending.error, ending.exit_code, kFailurePatience);
  const std::string text =
      processes.is_first() ? ending.error : processes.name(processes.rank()) + ": " + ending.error;
  if (!failure || is_first_with_its_error(*failure, processes.rank())) {
    fmt::print(errors, "runexp: {}\n", one_line(text));
    log_failure(ending.run_directory, text);
  }
  ending.keeps.reset();
  errors.flush();
  if (!failure) processes.transport()->abort(ending.exit_code);
  return failure->exit_code;
}

// Open MPI sends SIGTERM one second after a process dies and kills a second later; Slurm kills
// after KillWait, 30 s by default.
std::chrono::milliseconds last_moment(const LaunchEnvironment& launch) {
  return std::chrono::milliseconds(launch.by == "srun" ? 10000 : 600);
}

}  // namespace

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

CommandResult check_printed(CommandResult ending) {
  const std::string loss = flush_standard_output();
  if (ending.exit_code != kDone || loss.empty()) return ending;
  return {kFailed, "cannot write to standard output: " + loss};
}

int run_runexp(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& errors) {
  const LaunchEnvironment launch = find_launch_environment();
  std::optional<Watchdog> watch;  // Outlives the transport, whose destructor may wait.
  if (launch.size > 1)
    watch.emplace(fmt::format("process {} of {}", launch.rank, launch.size), last_moment(launch));
  std::shared_ptr<Transport> transport;
  try {
    transport = join_processes(launch);
  } catch (const std::exception& error) {
    // The others cannot be asked; those of this host report the same. The first to exit ends all.
    if (launch.local_rank != 0) std::this_thread::sleep_for(kFailurePatience);
    fmt::print(errors, "runexp: {}\n", one_line(error.what()));
    return kBadUsage;
  }
  ProcessGroup processes(std::move(transport));
  Watchdog* const watching = watch ? &*watch : nullptr;
  const Watchdog::Attention attention(watching, processes);
  std::ostream nowhere(nullptr);
  CommandResult ending = catch_errors([&] {
    const CommandContext context{processes, watching, processes.is_first() ? out : nowhere,
                                 processes.is_first() ? errors : nowhere};
    if (asks_help(arguments)) {
      context.out << help_text(arguments);
      return check_printed();
    }
    const CommandLine line = parse_command_line(arguments);
    compare_flags(line.given, processes);
    return line.command->run(context);
  });
  const int exit_code = end_together(std::move(ending), processes, errors);
  // If this process returned, the launcher would end the others before they finish.
  if (watch && exit_code != kDone) watch->dismiss();
  return exit_code;
}

}  // namespace tessera
