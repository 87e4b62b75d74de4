// SPDX-License-Identifier: Apache-2.0
// A command of runexp: a struct in a file of its own, whose members are its flags
// (core/flags/flags.h).
//
//   struct Report {
//     static constexpr CommandInfo kInfo{.flag = "report", .summary = "write a run's report"};
//     std::filesystem::path report;
//     FIELDS(About(report, "", {.unit = "RUN"}))  // The summary says what it is.
//     void check() const;  // Optional: Error for flags that do not fit together.
//     CommandResult run(const CommandContext& context) const;
//   };
//   std::unique_ptr<Command> report_command() { return command_of<Report>(); }
//
// Its row in the table of commands.cc makes it known. Parsing, help, completion and the refusal of
// other commands' flags follow from the members.
#pragma once

#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/flags/flags.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadUsage = 2;

// How a command ended in this process. All processes then return one code.
struct CommandResult {
  int exit_code = kDone;
  std::string error = {};
  std::filesystem::path run_directory = {};  // Its failures.log gets the error; or empty.
  std::shared_ptr<void> keeps = {};          // What must live until that is written.
};

struct CommandContext {
  ProcessGroup& processes;
  Watchdog* watch = nullptr;  // Set in a process that is not alone.
  std::ostream& out;          // Output of the first process; others print nothing.
  std::ostream& errors;
};

// How a command is chosen, and what --help says about it.
struct CommandInfo {
  std::string_view mode{};  // By --mode=MODE; "": by its flag alone.
  std::string_view flag{};  // By this flag of its own, with --mode if it has both; or "".
  std::string_view summary{};

  std::string name() const;  // "--mode=plan --search", "--report"
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const CommandInfo& info() const = 0;
  virtual std::vector<Flag> flags() = 0;
  virtual void check() const = 0;
  virtual CommandResult run(const CommandContext& context) const = 0;
};

template <typename Struct>
class CommandOf final : public Command {
 public:
  const CommandInfo& info() const override { return Struct::kInfo; }
  std::vector<Flag> flags() override { return flags_of(command_); }
  void check() const override {
    if constexpr (requires { command_.check(); }) command_.check();
  }
  CommandResult run(const CommandContext& context) const override { return command_.run(context); }

 private:
  Struct command_;
};

template <typename Struct>
std::unique_ptr<Command> command_of() {
  return std::make_unique<CommandOf<Struct>>();
}

// A message without line breaks.
std::string one_line(std::string text);

// Fails if the output is incomplete, unless the reader closed the pipe (`| head -1`). For commands
// whose output is their result.
CommandResult check_printed(CommandResult ending = {});

}  // namespace tessera
