// SPDX-License-Identifier: Apache-2.0
// The program flat_tokens: its commands, and how they read the command line.
#pragma once

#include <atomic>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "inputs/flat_tokens/flat_tokens_file.h"

namespace tessera {

// Wrong usage, exit code 2; other Errors are exit code 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

// `--name=value` flags and positional arguments.
struct Arguments {
  std::map<std::string, std::string> flags;
  std::vector<std::string> paths;

  bool has(const std::string& name) const { return flags.contains(name); }
  std::string text(const std::string& name, const std::string& fallback) const;
  template <typename T>
  T number(const std::string& name, T fallback, T least, T most) const;
  // The index of the value in `names`; the first is the default.
  size_t choice(const std::string& name, const std::vector<std::string>& names) const;
};

// UsageError for a flag that is unknown, repeated or without a value. `plain` flags have no value.
Arguments parse_arguments(const std::vector<std::string>& words,
                          const std::vector<std::string>& known,
                          const std::vector<std::string>& plain = {});

struct Command {
  std::string name;
  std::string usage;  // For --help.
  // `out` gets the result, `notes` progress and warnings.
  void (*run)(const std::vector<std::string>& words, std::ostream& out, std::ostream& notes);
};

// One per file.
Command build_command();
Command inspect_command();
Command import_command();
Command train_command();

// Integers keep 64 bits until the range is checked.
template <typename T>
auto number_of(std::string_view text) {
  if constexpr (std::is_integral_v<T>) {
    return parse_integer(text);
  } else {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    return is_number ? std::optional<T>(value) : std::nullopt;
  }
}

template <typename T>
T Arguments::number(const std::string& name, T fallback, T least, T most) const {
  const auto found = flags.find(name);
  if (found == flags.end()) return fallback;
  const std::string& text = found->second;
  const auto value = number_of<T>(text);
  if (!value || !(*value >= least) || !(*value <= most))
    throw UsageError(
        fmt::format("--{}={}: expected a number from {} to {}", name, text, least, most));
  return static_cast<T>(*value);
}

// UsageError if the output is one of these files, by whatever path or link, --overwrite or not.
void check_not_an_input(const std::filesystem::path& output,
                        const std::vector<std::filesystem::path>& inputs);

// UsageError if --output exists and is not a token file of this tokenizer, unless --overwrite is
// given.
void check_output(const Arguments& arguments, const TokenizerIdentity& identity);

// While it exists, stop signals (kStopSignals) set a flag; a second one ends the process.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  const std::atomic<bool>* flag() const;
};

// The program as a function, for tests. `arguments` without the program's name. Returns the exit
// code: 0 success, 1 bad data or a failed write, 2 bad usage.
int run_flat_tokens(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& errors);

}  // namespace tessera
