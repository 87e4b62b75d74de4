// SPDX-License-Identifier: Apache-2.0
#include "core/flags/flags.h"

#include <algorithm>
#include <cmath>

#include <boost/program_options.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/environment.h"
#include "core/io/storage/storage.h"

namespace tessera {
namespace {

namespace options = boost::program_options;

using Words = std::vector<std::string>;

// Returns "a whole number, 1 or more", "a number from 0 to 1".
std::string expected_number(FieldInfo info, std::string_view kind) {
  info.unit = {};
  const bool is_closed = std::isfinite(info.min) && std::isfinite(info.max);
  if (is_closed) return fmt::format("{} from {:.15g} to {:.15g}", kind, info.min, info.max);
  const std::string range = info.range();
  const std::string least = fmt::format("at least {}", info.min);
  if (range == least) return fmt::format("{}, {:.15g} or more", kind, info.min);
  return range.empty() ? std::string(kind) : fmt::format("{}, {}", kind, range);
}

template <typename Number>
void check_number(const Flag& flag, const std::string& word, const std::optional<Number>& value,
                  std::string_view kind) {
  if (!value || !flag.info.allows(static_cast<double>(*value)))
    fail("--{}={}: expected {}", flag.name, word, expected_number(flag.info, kind));
}

options::options_description description_of(const std::vector<Flag>& flags) {
  options::options_description description;
  for (const Flag& flag : flags) {
    auto add = description.add_options();
    if (flag.is_plain()) {
      add(flag.name.c_str(), "");
    } else if (flag.repeats) {
      auto* const list = options::value<Words>()->composing();
      add(flag.name.c_str(), flag.takes_several() ? list->multitoken() : list, "");
    } else {
      add(flag.name.c_str(), options::value<std::string>(), "");
    }
  }
  return description;
}

[[noreturn]] void fail_unknown(const std::vector<Flag>& flags, std::string given,
                               const ParseAdvice& advice) {
  given.erase(0, given.find_first_not_of('-'));
  const std::string name = given.substr(0, given.find('='));
  std::string near = nearest(name, advice.first);
  if (near.empty()) near = nearest(name, names_of(flags));
  if (!near.empty()) fail("unknown flag --{}; did you mean --{}?", name, near);
  fail("unknown flag --{}; --help lists them{}", name,
       advice.for_flag ? advice.for_flag(given) : "");
}

[[noreturn]] void fail_stray(const Words& arguments, const ParseAdvice& advice) {
  const auto stray = std::ranges::find_if(
      arguments, [](const std::string& word) { return !word.starts_with("--"); });
  const std::string word = stray == arguments.end() ? "argument" : *stray;
  if (word.starts_with("-")) fail("'{}' is not a flag; flags begin with --: -{}?", word, word);
  fail("'{}' is not a flag; {}", word,
       advice.for_word ? advice.for_word(word) : "--help lists them");
}

// Adds an empty value to "--prompt=", which Boost takes for a flag without a value; repeated flags
// may have one.
Words with_empty_values(const std::vector<Flag>& flags, const Words& arguments) {
  Words words;
  for (const std::string& argument : arguments) {
    words.push_back(argument);
    if (!argument.starts_with("--") || !argument.ends_with("=")) continue;
    const Flag* flag = find_flag(flags, std::string_view(argument).substr(2, argument.size() - 3));
    if (flag == nullptr || !flag->repeats) continue;
    words.back().pop_back();
    words.emplace_back();
  }
  return words;
}

options::variables_map parse(const std::vector<Flag>& flags, const Words& arguments,
                             const ParseAdvice& advice) {
  options::variables_map values;
  try {
    // No short flags and no guessing: an abbreviation would change its meaning as flags are added.
    const int style = options::command_line_style::allow_long |
                      options::command_line_style::long_allow_adjacent |
                      options::command_line_style::long_allow_next;
    const options::options_description description = description_of(flags);
    options::store(options::command_line_parser(with_empty_values(flags, arguments))
                       .options(description)
                       .positional({})
                       .style(style)
                       .run(),
                   values);
  } catch (const options::unknown_option& error) {
    fail_unknown(flags, error.get_option_name(), advice);
  } catch (const options::multiple_occurrences& error) {
    fail("{} is given more than once", error.get_option_name());
  } catch (const options::too_many_positional_options_error&) {
    fail_stray(arguments, advice);
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

// Returns ": cpu, cuda", if the placeholder does not say it.
std::string choices_of(const Flag& flag) {
  const bool is_said = flag.placeholder == fmt::format("{}", fmt::join(flag.choices, "|"));
  if (is_said || flag.choices.empty()) return "";
  return fmt::format(": {}", fmt::join(flag.choices, ", "));
}

// Returns " (1 to 256; default: 1)"; it does not say that N is neither negative nor huge.
std::string limits_of(const Flag& flag) {
  constexpr double kHuge = 1e9;
  FieldInfo range = flag.info;
  range.unit = {};
  if (range.max >= kHuge) range.max = FieldInfo{}.max;
  std::string limits = range.range();
  if (limits == "at least 0" || limits == "at least 1") limits.clear();
  const std::string usual = fmt::format("{}", fmt::join(flag.usual, " "));
  if (!usual.empty()) limits += fmt::format("{}default: {}", limits.empty() ? "" : "; ", usual);
  return limits.empty() ? "" : fmt::format(" ({})", limits);
}

}  // namespace

std::string Flag::spelling() const {
  if (is_plain()) return "--" + name;
  const bool is_apart = takes_several() || placeholder.find('=') != std::string::npos;
  return fmt::format("--{}{}{}", name, is_apart ? " " : "=", placeholder);
}

void detail::read_word(const Flag& flag, const std::string& word, int64_t& value) {
  const std::optional<int64_t> number = parse_integer(word);
  check_number(flag, word, number, "a whole number");
  value = *number;
}

void detail::read_word(const Flag& flag, const std::string& word, double& value) {
  const std::optional<double> number = parse_real(word);
  check_number(flag, word, number, "a number");
  value = *number;
}

void detail::read_word(const Flag&, const std::string& word, std::string& value) { value = word; }

void detail::read_word(const Flag& flag, const std::string& word, std::filesystem::path& value) {
  const bool may_be_url = flag.placeholder.find("URL") != std::string::npos;
  value = (may_be_url ? path_or_url : user_path)(word, "--" + flag.name);
}

size_t detail::read_choice(const Flag& flag, const std::string& word) {
  const auto found = std::ranges::find(flag.choices, word);
  if (found == flag.choices.end())
    fail("--{}={}: expected one of {}{}", flag.name, word, fmt::join(flag.choices, ", "),
         did_you_mean(word, flag.choices));
  return static_cast<size_t>(found - flag.choices.begin());
}

const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name) {
  const auto found = std::ranges::find(flags, name, &Flag::name);
  return found == flags.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) names.push_back(flag.name);
  return names;
}

std::vector<GivenFlag> split_flags(const std::vector<Flag>& flags, const Words& arguments,
                                   const ParseAdvice& advice) {
  std::vector<GivenFlag> given;
  for (const auto& [name, value] : parse(flags, arguments, advice)) {
    Words& words = given.emplace_back(GivenFlag{name, {}}).words;
    if (const auto* const word = boost::any_cast<std::string>(&value.value())) words = {*word};
    if (const auto* const list = boost::any_cast<Words>(&value.value())) words = *list;
  }
  return given;
}

void read_flags(const std::vector<Flag>& flags, const std::vector<GivenFlag>& given) {
  for (const auto& [name, words] : given) {
    const Flag* flag = find_flag(flags, name);
    CHECK(flag != nullptr);
    flag->read(words);
  }
}

std::vector<std::string> to_arguments(const std::vector<Flag>& flags) {
  std::vector<std::string> arguments;
  for (const Flag& flag : flags) {
    const Words words = flag.words();
    if (words == flag.usual) continue;
    for (const std::string& word : words) {
      // "--set path=value" is easier to read than "--set=path=value".
      const bool is_apart = word.find('=') != std::string::npos && !word.starts_with('-');
      arguments.push_back("--" + flag.name);
      if (is_apart) arguments.push_back(word);
      if (!is_apart && !flag.is_plain()) arguments.back() += "=" + word;
    }
  }
  return arguments;
}

std::string flags_help(const std::vector<Flag>& flags) {
  constexpr size_t kTexts = 25;  // Column at which texts begin.
  std::string help;
  for (const Flag& flag : flags) {
    const std::string head = "  " + flag.spelling();
    const std::string text =
        wrapped(std::string(flag.info.text) + choices_of(flag) + limits_of(flag), kTexts);
    const bool fits = head.size() + 2 <= kTexts;
    help += head + (fits ? text.substr(head.size()) : "\n" + text);
  }
  return help;
}

}  // namespace tessera
