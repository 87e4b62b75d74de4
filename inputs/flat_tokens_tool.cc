// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool.h"

#include <algorithm>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "inputs/commands/command.h"

namespace tessera {
namespace {

bool asks_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

void dispatch(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& notes) {
  const std::vector<Command> commands = {build_command(), inspect_command(), import_command(),
                                         train_command()};
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  if (arguments.empty())
    throw UsageError(fmt::format("say what to do: {}", fmt::join(names, ", ")));
  const auto chosen = std::find_if(commands.begin(), commands.end(), [&](const Command& command) {
    return command.name == arguments[0];
  });
  if (arguments[0] == "help" || asks_help(arguments)) {
    fmt::print(out, "usage:\n");
    for (const Command& command : commands)
      if (chosen == commands.end() || chosen->name == command.name)
        fmt::print(out, "{}", command.usage);
  } else if (chosen == commands.end()) {
    throw UsageError(
        fmt::format("no command '{}'{}", arguments[0], did_you_mean(arguments[0], names)));
  } else {
    chosen->run({arguments.begin() + 1, arguments.end()}, out, notes);
  }
}

}  // namespace

int run_flat_tokens(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& errors) {
  try {
    dispatch(arguments, out, errors);
    const std::string loss = flush_standard_output();
    if (!loss.empty()) fail("cannot write to standard output: {}", loss);
    return 0;
  } catch (const UsageError& error) {
    fmt::print(errors, "flat_tokens: {}; flat_tokens --help says how it is used\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(errors, "flat_tokens: {}\n", error_text(error));
    return 1;
  }
}

}  // namespace tessera
