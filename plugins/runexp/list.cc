// SPDX-License-Identifier: Apache-2.0
// --list: the experiments of all plugins.
#include <algorithm>

#include <fmt/ostream.h>

#include "plugins/loader.h"
#include "plugins/registry.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/flag_groups.h"

namespace tessera {
namespace {

struct List {
  static constexpr CommandInfo kInfo{.flag = "list",
                                     .summary = "list the experiments of all plugins"};
  bool list = false;
  PluginFlags plugins;
  FIELDS(list, plugins)

  CommandResult run(const CommandContext& context) const {
    const std::vector<std::string> problems = load_plugins(find_plugins(plugins.folders()));
    const std::vector<ExperimentEntry> entries = registered_experiments();
    size_t width = 0;
    for (const ExperimentEntry& entry : entries) width = std::max(width, entry.name.size());
    for (const ExperimentEntry& entry : entries)
      fmt::print(context.out, "{:<{}}  {}\n", entry.name, width,
                 entry.summary.empty() ? entry.plugin : entry.summary);
    if (entries.empty())
      fmt::print(context.out, "no experiments; --plugin_path=DIR adds places to look\n");
    for (const std::string& problem : problems)
      fmt::print(context.errors, "runexp: not loaded: {}\n", one_line(problem));
    for (const std::string& clash : experiment_clashes())
      fmt::print(context.errors, "runexp: {}\n", clash);
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> list_command() { return command_of<List>(); }

}  // namespace tessera
