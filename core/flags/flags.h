// SPDX-License-Identifier: Apache-2.0
// The flags of a program or command: a struct with FIELDS (core/hparams/fields.h) whose members are
// the values. Parsing, --help, the arguments that give the same struct again and the completions of
// a shell follow from the one list:
//
//   struct Eval {
//     std::string checkpoint = "newest";
//     std::vector<std::filesystem::path> plugin_path;
//     bool smoke = false;
//     FIELDS(About(checkpoint, "which one to score", {.unit = "STEP"}),
//            About(plugin_path, "also look here", {.unit = "DIR"}), About(smoke, "make it small"))
//   };
//
// Members may be bool (a flag without a value, false unless given), int64_t, double, std::string,
// std::filesystem::path (user_path), an enum class with names, and std::optional (not given) or
// std::vector (may be repeated) of those. In About, `unit` is what the help writes after "=". One
// that ends in "..." may have several words after the flag; a path whose `unit` has "URL" may be
// one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/ranges.h>

#include "core/hparams/convert.h"
#include "core/hparams/fields.h"

namespace tessera {

// One flag, and the member that it sets.
struct Flag {
  std::string name;
  FieldInfo info;                    // Its text, placeholder (`unit`) and range.
  std::string placeholder;           // "N", "DIR", "min|max"; "": the flag takes no value.
  bool repeats = false;              // It may be given several times.
  std::vector<std::string> choices;  // The only values, if there are few.
  std::vector<std::string> usual;    // Words of the member's default; none: unset or false.

  // Sets the member. Error for an invalid value.
  std::function<void(const std::vector<std::string>& words)> read;
  std::function<std::vector<std::string>()> words;  // Words of the member's current value.

  bool is_plain() const { return placeholder.empty(); }
  bool takes_several() const { return placeholder.ends_with("..."); }
  std::string spelling() const;  // "--checkpoint=STEP", "--set PATH=VALUE"
};

namespace detail {

// Reads a number; Error if the word is no such number, or out of the flag's range.
void read_word(const Flag& flag, const std::string& word, int64_t& value);
void read_word(const Flag& flag, const std::string& word, double& value);
void read_word(const Flag& flag, const std::string& word, std::string& value);
void read_word(const Flag& flag, const std::string& word, std::filesystem::path& value);
// Returns the index of the word among the flag's choices; Error if it is not one of them.
size_t read_choice(const Flag& flag, const std::string& word);

template <typename T>
void read_words(const Flag& flag, const std::vector<std::string>& words, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = true;
  } else if constexpr (is_a<T, std::optional>) {
    read_words(flag, words, value.emplace());
  } else if constexpr (is_a<T, std::vector>) {
    value.clear();
    for (const std::string& word : words) read_words(flag, {word}, value.emplace_back());
  } else if constexpr (NamedEnum<T>) {
    value = enum_names(T{})[read_choice(flag, words.front())].value;
  } else {
    read_word(flag, words.front(), value);
  }
}

template <typename T>
std::vector<std::string> words_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? std::vector<std::string>{""} : std::vector<std::string>{};
  } else if constexpr (is_a<T, std::optional>) {
    return value ? words_of(*value) : std::vector<std::string>{};
  } else if constexpr (is_a<T, std::vector>) {
    std::vector<std::string> words;
    for (const auto& item : value) words.push_back(words_of(item).front());
    return words;
  } else if constexpr (NamedEnum<T>) {
    return {std::string(enum_name(value))};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return {fmt::format("{}", value)};
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return {value.string()};
  } else {
    return {value};
  }
}

template <typename T>
void describe_values(Flag& flag) {
  if constexpr (is_a<T, std::optional> || is_a<T, std::vector>) {
    describe_values<typename T::value_type>(flag);
    flag.repeats = is_a<T, std::vector>;
  } else if constexpr (NamedEnum<T>) {
    for (const auto& row : enum_names(T{})) flag.choices.emplace_back(row.name);
    flag.placeholder = fmt::format("{}", fmt::join(flag.choices, "|"));
  } else if constexpr (!std::is_same_v<T, bool>) {
    flag.placeholder = std::is_same_v<T, int64_t>                 ? "N"
                       : std::is_same_v<T, double>                ? "X"
                       : std::is_same_v<T, std::filesystem::path> ? "PATH"
                                                                  : "TEXT";
  }
}

template <typename T>
Flag flag_of(std::string_view name, T& member, const FieldInfo* info) {
  Flag flag{.name = std::string(name)};
  describe_values<T>(flag);
  if (info != nullptr) flag.info = *info;
  if (!flag.info.unit.empty()) flag.placeholder = flag.info.unit;
  flag.words = [&member] { return words_of(member); };
  return flag;
}

}  // namespace detail

// Lists the flags of a struct, which must outlive them.
template <typename Struct>
std::vector<Flag> flags_of(Struct& values) {
  std::vector<Flag> flags;
  visit_fields(values, [&](std::string_view name, auto& member, const FieldInfo* info) {
    flags.push_back(detail::flag_of(name, member, info));
    flags.back().read = [&member, flag = flags.back()](const std::vector<std::string>& words) {
      detail::read_words(flag, words, member);
    };
  });
  const Struct usual{};
  auto flag = flags.begin();
  visit_fields(usual, [&flag](std::string_view, const auto& member, const FieldInfo*) {
    (flag++)->usual = detail::words_of(member);
  });
  return flags;
}

// Finds a flag by its name; null if there is no such flag.
const Flag* find_flag(const std::vector<Flag>& flags, std::string_view name);
std::vector<std::string> names_of(const std::vector<Flag>& flags);

// The words given for one flag, in the order of the command line; none for one without a value.
struct GivenFlag {
  std::string name;
  std::vector<std::string> words;
};

// Hints that a program adds to errors about unknown words, such as "num_layers=2", "ChatLm".
struct ParseAdvice {
  std::vector<std::string> first = {};  // Flags that are suggested rather than others.
  std::function<std::string(const std::string& given)> for_flag = {};  // Unknown: "num_layers=2".
  std::function<std::string(const std::string& word)> for_word = {};   // A word without dashes.
};

// Sorts a command line by flags. Error for an unknown flag, with the nearest one, for a missing or
// superfluous value, and for a flag given twice that may not be.
std::vector<GivenFlag> split_flags(const std::vector<Flag>& flags,
                                   const std::vector<std::string>& arguments,
                                   const ParseAdvice& advice = {});

// Sets the members of the flags that are given, each of which is among `flags`. Error for an
// invalid value.
void read_flags(const std::vector<Flag>& flags, const std::vector<GivenFlag>& given);

// Returns the command line that sets the members: each that differs from its default.
std::vector<std::string> to_arguments(const std::vector<Flag>& flags);
template <typename Struct>
std::vector<std::string> to_arguments(Struct values) {
  return to_arguments(flags_of(values));
}

// Returns text for --help, in lines of at most 100 columns: "  --threads=N   threads to use (1 or
// more)".
std::string flags_help(const std::vector<Flag>& flags);

}  // namespace tessera
