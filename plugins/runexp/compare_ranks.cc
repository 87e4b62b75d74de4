// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/compare_ranks.h"

#include <algorithm>
#include <span>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/hparams/text.h"
#include "plugins/loader.h"

namespace tessera {
namespace {

// --set, --exp and --config are compared by the configuration that they give.
constexpr std::string_view kFlagsOfHost[] = {"config",   "exp",    "job_log_dir", "launch_costs",
                                             "input",    "output", "plugin_path", "set",
                                             "set_file", "threads"};

// Whether a field is a path on the host's own disk: its name is path, directory or …_path.
bool is_of_host(std::string_view field) {
  field = field.substr(0, field.find('['));
  const std::string_view name = field.substr(field.rfind('.') + 1);
  return name == "path" || name == "directory" || name.ends_with("_path");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Compares lines, each of which names what it is. The checksums go first: the texts of a thousand
// processes are large.
void compare(const std::vector<std::string>& mine, ProcessGroup& processes) {
  const std::string text = fmt::format("{}", fmt::join(mine, "\n"));
  const std::vector<std::string> sums = processes.all_gather(
      fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text)))), "whether all processes agree");
  const auto other = std::ranges::find_if(sums, [&](const std::string& s) { return s != sums[0]; });
  if (other == sums.end()) return;
  const std::vector<std::string> texts = processes.all_gather(text, "how the processes differ");
  const auto rank = static_cast<size_t>(other - sums.begin());
  const auto lines = lines_of(texts[rank]), expected = lines_of(texts[0]);
  const auto [got, first] = std::ranges::mismatch(lines, expected);
  fail(
      "{} was started differently: it has {}, but process 0 has {}; start all processes with the "
      "same command",
      processes.name(static_cast<int>(rank)), got == lines.end() ? "nothing" : *got,
      first == expected.end() ? "nothing" : *first);
}

}  // namespace

void compare_flags(const std::vector<GivenFlag>& given, ProcessGroup& processes) {
  if (processes.size() == 1) return;
  std::vector<std::string> lines;
  for (const auto& [name, words] : given)
    if (std::ranges::find(kFlagsOfHost, name) == std::end(kFlagsOfHost))
      lines.push_back(fmt::format("--{} {}", name, fmt::join(words, " ")));
  compare(lines, processes);
}

void compare_configurations(const ConfiguredExperiment& configured, ProcessGroup& processes) {
  if (processes.size() == 1) return;
  const CodeStamp code = code_stamp(configured.entry);
  std::vector<std::string> lines = {"build " + code.build, "plugins " + code.plugins,
                                    "experiment " + configured.entry.name};
  constexpr std::string_view kBefore = ": absent -> ";  // In the difference to nothing.
  for (std::string line : diff(Tree{}, configured.config_tree()))
    if (const size_t end = line.find(kBefore);
        end != std::string::npos && !is_of_host(line.substr(0, end)))
      lines.push_back(line.replace(end, kBefore.size(), " = "));
  compare(lines, processes);
}

}  // namespace tessera
