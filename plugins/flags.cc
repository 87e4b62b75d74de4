// SPDX-License-Identifier: Apache-2.0
#include "plugins/flags.h"

#include <algorithm>
#include <set>

#include <boost/program_options.hpp>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/io/user_path.h"

namespace tessera {
namespace {

namespace options = boost::program_options;

using Words = std::vector<std::string>;

options::options_description description() {
  options::options_description flags;
  const auto text = [&flags](const char* name) {
    flags.add_options()(name, options::value<std::string>(), "");
  };
  const auto texts = [&flags](const char* name) {
    flags.add_options()(name, options::value<std::vector<std::string>>()->composing(), "");
  };
  const auto plain = [&flags](const char* name) { flags.add_options()(name, ""); };
  for (const char* name : {"exp",          "config",          "mode",          "job_log_dir",
                           "devices",      "threads",         "device",        "diff",
                           "dump_graph",   "profile",         "hardware",      "compare_plan",
                           "checkpoint",   "format",          "input",         "output",
                           "dtype",        "max_shard_bytes", "report",        "watch",
                           "port",         "sweep_processes", "sweep_trials",  "sweep_seed",
                           "sweep_metric", "sweep_goal",      "goal",          "search_devices",
                           "search_slice", "search_seconds",  "step",          "against",
                           "tolerance",    "record",          "record_values", "kernels_of",
                           "trace",        "launch_costs",    "find",          "inspect"})
    text(name);
  flags.add_options()("compare",
                      options::value<std::vector<std::string>>()->multitoken()->composing(), "");
  for (const char* name : {"set", "set_file", "plugin_path", "prompt", "prompt_ids", "sweep"})
    texts(name);
  for (const char* name : {"help", "version", "list", "describe", "restart", "allow_config_change",
                           "allow_code_change", "dry_run", "print_ids", "smoke", "retry_failed",
                           "search", "isolate", "search_state_dtype"})
    plain(name);
  return flags;
}

options::variables_map parse(const std::vector<std::string>& arguments) {
  const options::options_description flags = description();
  options::positional_options_description nothing;
  options::variables_map values;
  // The library takes "--prompt=" for a flag without a value.
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_empty = argument == "--prompt=";
    words.push_back(is_empty ? "--prompt" : argument);
    if (is_empty) words.emplace_back();
  }
  try {
    // No short flags and no guessing: an abbreviation would change its meaning as flags are added.
    const int style = options::command_line_style::allow_long |
                      options::command_line_style::long_allow_adjacent |
                      options::command_line_style::long_allow_next;
    options::store(
        options::command_line_parser(words).options(flags).positional(nothing).style(style).run(),
        values);
  } catch (const options::unknown_option& error) {
    std::string given = error.get_option_name();
    given.erase(0, given.find_first_not_of('-'));
    const std::string name = given.substr(0, given.find('='));
    if (const std::string near = nearest(name, known_flags()); !near.empty())
      fail("unknown flag --{}; did you mean --{}?", name, near);
    fail("unknown flag --{}; --help lists them; a knob or a field is set with --set {}", name,
         given == name ? name + "=VALUE" : given);
  } catch (const options::multiple_occurrences& error) {
    fail("{} is given more than once", error.get_option_name());
  } catch (const options::too_many_positional_options_error&) {
    const auto stray =
        std::find_if(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return !word.starts_with("--"); });
    const std::string word = stray == arguments.end() ? "argument" : *stray;
    if (word.starts_with("-")) fail("'{}' is not a flag; flags begin with --: -{}?", word, word);
    if (word.find('=') != std::string::npos)
      fail("'{}' is not a flag; did you mean --set {}?", word, word);
    fail("'{}' is not a flag; --help lists them; an experiment is given as --exp={}", word, word);
  } catch (const options::invalid_command_line_syntax& error) {
    const std::string name = error.get_option_name();
    if (error.kind() == options::invalid_command_line_syntax::extra_parameter)
      fail("{} takes no value", name);
    fail("{} needs a value; --help says which", name);
  } catch (const options::error& error) {
    fail("{}", error.what());
  }
  return values;
}

}  // namespace

Flags::Flags(const std::vector<std::string>& arguments) {
  // Of those that also take a name or a number, no name is changed.
  static const std::set<std::string> kPaths = {
      "config", "job_log_dir", "hardware", "compare_plan", "input", "output",
      "report", "watch",       "compare",  "set_file",     "diff",  "plugin_path",
      "record", "against",     "trace",    "launch_costs"};
  for (const auto& [flag, value] : parse(arguments)) {
    std::vector<std::string>& words = given_[flag];
    if (const auto* const word = boost::any_cast<std::string>(&value.value()))
      words = {*word};
    else if (const auto* const list = boost::any_cast<Words>(&value.value()))
      words = *list;
    if (kPaths.contains(flag))
      for (std::string& word : words) word = user_path(word, "--" + flag);
  }
}

std::string Flags::text(const std::string& flag) const {
  const std::vector<std::string> words = texts(flag);
  return words.empty() ? std::string() : words.front();
}

std::vector<std::string> Flags::texts(const std::string& flag) const {
  const auto found = given_.find(flag);
  return found == given_.end() ? std::vector<std::string>() : found->second;
}

std::optional<int64_t> Flags::number(const std::string& flag, int64_t least) const {
  if (!has(flag)) return std::nullopt;
  return whole_number(flag, text(flag), least);
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> names;
  for (const auto& [flag, words] : given_) names.push_back(flag);
  return names;
}

void Flags::need(std::string_view what, std::initializer_list<const char*> flags) const {
  for (const char* flag : flags)
    if (has(flag)) fail("--{} needs {}", flag, what);
}

void Flags::refuse(std::string_view with, std::initializer_list<const char*> flags,
                   std::string_view advice) const {
  for (const char* flag : flags)
    if (has(flag)) fail("--{} cannot be used with {}{}", flag, with, advice);
}

std::vector<std::string> known_flags() {
  std::vector<std::string> names;
  const options::options_description flags = description();
  for (const auto& flag : flags.options()) names.push_back(flag->long_name());
  return names;
}

int64_t whole_number(std::string_view flag, std::string_view text, int64_t least) {
  const std::optional<int64_t> value = parse_integer(text);
  if (!value || *value < least)
    fail("--{}={}: expected a whole number, {} or more", flag, text, least);
  return *value;
}

// The index of the value among `names`; Error if it is not one of them.
size_t index_in(const std::vector<std::string>& names, std::string_view flag,
                const std::string& value) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end())
    fail("--{}={}: expected one of {}{}", flag, value, fmt::join(names, ", "),
         did_you_mean(value, names));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace tessera
