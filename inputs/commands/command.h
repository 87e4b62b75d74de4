// SPDX-License-Identifier: Apache-2.0
// A command of the program flat_tokens, and how its command line is read.
#pragma once

#include <charconv>
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

namespace tessera {

// A slip in how the program was called; everything else that goes wrong is the data's fault.
class UsageError : public Error {
 public:
  using Error::Error;
};

// `--name=value` flags, and what else stands on the command line.
struct Arguments {
  std::map<std::string, std::string> flags;
  std::vector<std::string> paths;

  bool has(const std::string& name) const { return flags.contains(name); }
  std::string text(const std::string& name, const std::string& fallback) const;
  template <typename T>
  T number(const std::string& name, T fallback, T least, T most) const;
  // One of `names`, by its place among them.
  size_t choice(const std::string& name, const std::vector<std::string>& names) const;
};

// Flags beyond `known` and `plain`, given twice or without a value are UsageErrors; plain ones have
// none.
Arguments parse_arguments(const std::vector<std::string>& words,
                          const std::vector<std::string>& known,
                          const std::vector<std::string>& plain = {});

struct Command {
  std::string name;
  std::string usage;  // What --help prints of it.
  // `out` gets the result, `notes` what happens on the way.
  void (*run)(const std::vector<std::string>& words, std::ostream& out, std::ostream& notes);
};

// One file each.
Command build_command();
Command inspect_command();
Command import_command();
Command train_command();

// Not yet narrowed to T: the range is checked before.
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

}  // namespace tessera
