// SPDX-License-Identifier: Apache-2.0
// --completion=bash: the script that completes command lines of runexp in bash, and for it what may
// stand at the end of one.
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <fmt/ostream.h>

#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kScript =
    R"(# Completes runexp in bash: source <(./runexp --completion=bash)
_tessera_runexp() {
  local program=${1/#\~/$HOME} line=${COMP_LINE:0:COMP_POINT} word
  # ./runexp of a source folder would build first: asks what is built, if it is.
  [[ -e ${program%/*}/cmake/launch.sh ]] && program=${program%/*}/build/release/bin/runexp
  type "$program" &>/dev/null || return 0
  mapfile -t COMPREPLY < <(COMP_LINE=$line "$program" --completion=bash 2>/dev/null)
  # Bash replaces what follows the last = or : of a word.
  word=${line##*[[:space:]]}
  [[ $word == *[=:]* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[=:]}"}"}")
  [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace
}
complete -o default -F _tessera_runexp runexp
)";

// The value of a flag among these words, spelled either way; or "".
std::string value_in(const Words& words, const std::string& flag) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
  }
  return "";
}

// The names of experiments; also their last parts, if part of a name is typed.
Words experiments(bool with_last_parts) {
  load_plugins(find_plugins(plugin_path({})));
  Words names;
  for (const ExperimentEntry& entry : registered_experiments()) {
    names.push_back(entry.name);
    if (with_last_parts) names.push_back(entry.name.substr(entry.name.rfind('.') + 1));
  }
  return names;
}

// "num_layers=", … of the experiment that the words name.
Words knobs(const Words& words) {
  const ExperimentEntry entry = find_experiment(value_in(words, "--exp"), plugin_path({}));
  Words names = entry.knobs(*entry.make()).keys;
  for (std::string& name : names) name += '=';
  return names;
}

Words values(const Flag& flag, const std::string& begin, const Words& words) {
  if (flag.spelling().starts_with("--exp=")) return experiments(!begin.empty());
  if (flag.name == "set" || flag.name == "sweep") return knobs(words);
  return values_of(flag);
}

// The words that may replace `last` after these words.
Words candidates(const Words& words, const std::string& last) {
  CommonFlags common;
  const auto command = chosen_command(words);
  std::vector<Flag> flags = command->flags();
  for (Flag& flag : flags_of(common)) flags.push_back(std::move(flag));
  const size_t equals = last.find('=');
  if (last.starts_with("--") && equals != std::string::npos) {
    const Flag* flag = find_flag(flags, std::string_view(last).substr(2, equals - 2));
    Words found = flag == nullptr ? Words{} : values(*flag, last.substr(equals + 1), words);
    for (std::string& word : found) word.insert(0, last, 0, equals + 1);
    return found;
  }
  if (!words.empty() && words.back().starts_with("--"))
    if (const Flag* flag = find_flag(flags, std::string_view(words.back()).substr(2));
        flag != nullptr && !flag->is_plain())
      return values(*flag, last, words);
  Words found;
  for (const auto& other : all_commands())
    for (Flag& flag : other->flags())  // That chooses the other command.
      if (flag.name == other->info().flag) flags.push_back(std::move(flag));
  for (const Flag& flag : flags)
    found.push_back("--" + flag.name + (flag.is_plain() || flag.takes_several() ? "" : "="));
  if (words.empty()) found.emplace_back("new");
  return found;
}

struct Completion {
  enum class Shell { kBash };

  static constexpr CommandInfo kInfo{
      .flag = "completion", .summary = "print a script: source <(./runexp --completion=bash)"};
  Shell completion = Shell::kBash;
  FIELDS(completion)

  // Bash's variable COMP_LINE has the line up to the cursor.
  CommandResult run(const CommandContext& context) const {
    const char* line = std::getenv("COMP_LINE");
    if (line == nullptr) context.out << kScript;
    if (line != nullptr)
      for (const std::string& word : completions(line)) fmt::print(context.out, "{}\n", word);
    return check_printed();
  }
};

}  // namespace

Words completions(std::string_view line) {
  std::istringstream stream{std::string(line)};
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) return {};
  std::string last;
  if (!line.ends_with(' ')) {
    last = words.back();
    words.pop_back();
  }
  if (!words.empty()) words.erase(words.begin());
  Words found = candidates(words, last);
  std::erase_if(found, [&last](const std::string& word) { return !word.starts_with(last); });
  std::ranges::sort(found);
  const auto rest = std::ranges::unique(found);
  found.erase(rest.begin(), rest.end());
  return found;
}

std::unique_ptr<Command> completion_command() { return command_of<Completion>(); }

}  // namespace tessera
