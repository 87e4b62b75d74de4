// SPDX-License-Identifier: Apache-2.0
// All commands of runexp, and the choice of one by a command line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/runexp/command.h"

namespace tessera {

// Makes a command: one function for each file of this folder that defines a command.
std::unique_ptr<Command> calibrate_command();
std::unique_ptr<Command> compare_command();
std::unique_ptr<Command> completion_command();
std::unique_ptr<Command> decode_command();
std::unique_ptr<Command> describe_command();
std::unique_ptr<Command> diff_command();
std::unique_ptr<Command> eval_command();
std::unique_ptr<Command> export_command();
std::unique_ptr<Command> import_command();
std::unique_ptr<Command> list_command();
std::unique_ptr<Command> merge_command();
std::unique_ptr<Command> new_command();
std::unique_ptr<Command> plan_command();
std::unique_ptr<Command> refit_command();
std::unique_ptr<Command> replay_command();
std::unique_ptr<Command> report_command();
std::unique_ptr<Command> score_command();
std::unique_ptr<Command> search_command();
std::unique_ptr<Command> selfcheck_command();
std::unique_ptr<Command> show_batch_command();
std::unique_ptr<Command> sweep_command();
std::unique_ptr<Command> train_command();
std::unique_ptr<Command> version_command();
std::unique_ptr<Command> watch_command();

// The table of commands, in the order of --help. Tests add commands of their own.
using MakeCommand = std::unique_ptr<Command> (*)();
std::vector<MakeCommand>& command_table();
std::vector<std::unique_ptr<Command>> all_commands();
// The values of --mode, in the order of --help.
std::vector<std::string> mode_names();

// The flags that every command of --mode has beside its own.
struct CommonFlags {
  std::string mode = "train";
  bool help = false;
  FIELDS(About(mode, "what to do", {.unit = "MODE"}),
         About(help, "print the flags of the mode, or what there is"))
};

// A command line, read: the command with its flags set, and with those of the command line alone.
struct CommandLine {
  std::unique_ptr<Command> command;
  std::vector<GivenFlag> given;
};

// `arguments` without the program's name. Error for an unknown flag, for a flag of other commands,
// with what it needs and the nearest one of the chosen command, and for values that are invalid or
// do not fit together.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

// The command that these words choose, as far as they do: no flag need be valid. Error for an
// unknown mode.
std::unique_ptr<Command> chosen_command(const std::vector<std::string>& arguments);

// Whether a command line asks for help, for the program or for a command that other words choose.
bool asks_help(const std::vector<std::string>& arguments);
// Error for an unknown mode.
std::string help_text(const std::vector<std::string>& arguments = {});

// Completions of this line, which begins with the program: whole words that begin with the line's
// last word.
std::vector<std::string> completions(std::string_view line);

// The values that a flag may have on this machine, for help and completion: kinds of devices,
// hardware files, modes. None: any.
std::vector<std::string> values_of(const Flag& flag);

}  // namespace tessera
