// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/commands.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kNew = "new";              // The only command that is a word,
constexpr const char* kNewFlag = "new_project";  // which is read as this flag.
constexpr std::string_view kMode = "mode";
constexpr size_t kFew = 9;  // Flags of a command that an error lists.

// "--flag" or "--flag=value".
bool gives(const Words& arguments, std::string_view flag) {
  return std::ranges::any_of(arguments, [&](std::string_view word) {
    if (!word.starts_with("--") || word.substr(2, flag.size()) != flag) return false;
    return word.size() == 2 + flag.size() || word[2 + flag.size()] == '=';
  });
}

// The last value of --mode among the words.
std::string mode_of(const Words& arguments) {
  std::string mode = CommonFlags{}.mode;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--mode=")) mode = arguments[i].substr(kMode.size() + 3);
    if (arguments[i] == "--mode" && i + 1 < arguments.size()) mode = arguments[i + 1];
  }
  return mode;
}

bool has_flag(Command& command, std::string_view name) {
  return find_flag(command.flags(), name) != nullptr;
}

// "a, b and c"
std::string listed(const Words& words, std::string_view last, std::string_view between = ", ") {
  const Words first(words.begin(), words.end() - 1);
  if (first.empty()) return words.back();
  return fmt::format("{} {}{}", fmt::join(first, between), last, words.back());
}

// "--mode=plan or calibrate", "--watch": the commands that have a flag. Those without a mode take
// what a mode takes, or are the only ones.
std::string commands_with(std::string_view flag) {
  Words modes, of_modes, others;
  for (const auto& command : all_commands()) {
    const CommandInfo& info = command->info();
    if (!has_flag(*command, flag)) continue;
    if (info.flag.empty())
      modes.emplace_back(info.mode);
    else if (std::ranges::find(modes, info.mode) == modes.end())
      (info.mode.empty() ? others : of_modes).push_back(info.name());
  }
  if (!modes.empty()) of_modes.insert(of_modes.begin(), "--mode=" + listed(modes, "or "));
  return listed(of_modes.empty() ? others : of_modes, "or ");
}

// Whether another command of the same mode has the flag: the same with a flag more, or less.
const CommandInfo* sibling_with(std::string_view flag, const CommandInfo& chosen) {
  for (const auto& command : all_commands())
    if (!chosen.mode.empty() && command->info().mode == chosen.mode && has_flag(*command, flag))
      return &command->info();
  return nullptr;
}

[[noreturn]] void refuse(const std::string& flag, Command& command) {
  const CommandInfo& info = command.info();
  const std::string name = info.name();
  if (flag == kMode) fail("--{} cannot be used with {}", flag, name);
  Words own = names_of(command.flags());
  std::erase(own, info.flag);
  if (own.size() < kFew)
    fail("--{} cannot be used with {}{}", flag, name,
         own.empty() ? "" : ", which takes only --" + listed(own, "and --", ", --"));
  const CommandInfo* sibling = sibling_with(flag, info);
  if (sibling != nullptr && info.flag.empty()) fail("--{} needs --{}", flag, sibling->flag);
  if (sibling != nullptr) fail("--{} cannot be used with {}", flag, name);
  const std::string near = nearest(flag, own);
  fail("--{} needs {}{}", flag, commands_with(flag),
       near.empty() ? "" : fmt::format("; the nearest flag of {} is --{}", name, near));
}

// All flags of all commands; only their names and kinds count.
std::vector<Flag> all_flags(CommonFlags& common) {
  std::vector<Flag> flags = flags_of(common);
  for (const auto& command : all_commands())
    for (Flag& flag : command->flags()) flags.push_back(std::move(flag));
  return flags;
}

ParseAdvice advice(Words flags) {
  return {.first = std::move(flags),
          .for_flag =
              [](const std::string& given) {
                return fmt::format("; a knob or a field is set with --set {}",
                                   given.find('=') == given.npos ? given + "=VALUE" : given);
              },
          .for_word =
              [](const std::string& word) {
                if (word.find('=') != word.npos) return fmt::format("did you mean --set {}?", word);
                return fmt::format("--help lists them; an experiment is given as --exp={}", word);
              }};
}

// "new FOLDER" as a flag; Error if anything else is given.
Words with_flag_of_new(const Words& arguments) {
  if (arguments.empty() || arguments[0] != kNew) return arguments;
  if (arguments.size() != 2 || arguments[1].empty() || arguments[1].starts_with("-"))
    fail("new takes the name of a project and nothing else: runexp new my_project");
  return {fmt::format("--{}={}", kNewFlag, arguments[1])};
}

}  // namespace

std::string CommandInfo::name() const {
  if (flag == kNewFlag) return kNew;
  std::string name = mode.empty() ? "" : fmt::format("--mode={}", mode);
  if (!flag.empty()) name += fmt::format("{}--{}", name.empty() ? "" : " ", flag);
  return name;
}

std::vector<MakeCommand>& command_table() {
  static std::vector<MakeCommand> table = {
      train_command,  eval_command,       decode_command,    score_command,     plan_command,
      search_command, sweep_command,      replay_command,    import_command,    export_command,
      merge_command,  show_batch_command, calibrate_command, refit_command,     selfcheck_command,
      list_command,   describe_command,   diff_command,      report_command,    compare_command,
      watch_command,  new_command,        version_command,   completion_command};
  return table;
}

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const MakeCommand make : command_table()) commands.push_back(make());
  return commands;
}

Words mode_names() {
  Words names;
  for (const auto& command : all_commands())
    if (command->info().flag.empty()) names.emplace_back(command->info().mode);
  return names;
}

std::unique_ptr<Command> chosen_command(const Words& arguments) {
  std::vector<std::unique_ptr<Command>> commands = all_commands();
  for (auto& command : commands)
    if (!command->info().flag.empty() && gives(arguments, command->info().flag))
      return std::move(command);
  const std::string mode = mode_of(arguments);
  for (auto& command : commands)
    if (command->info().flag.empty() && command->info().mode == mode) return std::move(command);
  const Words names = mode_names();
  fail("--mode={}: expected one of {}{}", mode, fmt::join(names, ", "), did_you_mean(mode, names));
}

CommandLine parse_command_line(const Words& given) {
  const Words arguments = with_flag_of_new(given);
  CommonFlags common;
  CommandLine line;
  line.command = chosen_command(arguments);
  const CommandInfo& info = line.command->info();
  std::vector<Flag> own = line.command->flags(), all = own;
  for (Flag& flag : flags_of(common))
    if (flag.name != kMode || !info.mode.empty()) own.push_back(std::move(flag));
  for (Flag& flag : all_flags(common))
    if (find_flag(all, flag.name) == nullptr) all.push_back(std::move(flag));
  line.given = split_flags(all, arguments, advice(names_of(own)));
  if (!info.flag.empty() && !info.mode.empty() && mode_of(arguments) != info.mode)
    fail("--{} needs --{}={}", info.flag, kMode, info.mode);
  for (const GivenFlag& flag : line.given)
    if (find_flag(own, flag.name) == nullptr) refuse(flag.name, *line.command);
  read_flags(own, line.given);
  line.command->check();
  return line;
}

}  // namespace tessera
