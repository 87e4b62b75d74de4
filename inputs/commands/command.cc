// SPDX-License-Identifier: Apache-2.0
#include "inputs/commands/command.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace tessera {

std::string Arguments::text(const std::string& name, const std::string& fallback) const {
  const auto found = flags.find(name);
  return found == flags.end() ? fallback : found->second;
}

size_t Arguments::choice(const std::string& name, const std::vector<std::string>& names) const {
  const std::string chosen = text(name, names[0]);
  const auto found = std::find(names.begin(), names.end(), chosen);
  if (found == names.end())
    throw UsageError(fmt::format("--{}={}: expected one of {}{}", name, chosen,
                                 fmt::join(names, ", "), did_you_mean(chosen, names)));
  return static_cast<size_t>(found - names.begin());
}

Arguments parse_arguments(const std::vector<std::string>& words,
                          const std::vector<std::string>& known,
                          const std::vector<std::string>& plain) {
  std::vector<std::string> all = known;
  all.insert(all.end(), plain.begin(), plain.end());
  Arguments result;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) {
      result.paths.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (std::find(all.begin(), all.end(), name) == all.end())
      throw UsageError(fmt::format("no flag --{}{}", name, did_you_mean(name, all)));
    const bool is_plain = std::find(plain.begin(), plain.end(), name) != plain.end();
    if (is_plain && equals != std::string::npos)
      throw UsageError(fmt::format("--{} takes no value", name));
    if (!is_plain && equals == std::string::npos)
      throw UsageError(fmt::format("--{} wants a value: --{}=VALUE", name, name));
    if (!result.flags.emplace(name, is_plain ? "" : word.substr(equals + 1)).second)
      throw UsageError(fmt::format("--{} is given twice", name));
  }
  return result;
}

}  // namespace tessera
