// SPDX-License-Identifier: Apache-2.0
// --version: the build stamp.
#include <fmt/ostream.h>

#include "plugins/loader.h"
#include "plugins/runexp/commands.h"

namespace tessera {
namespace {

struct Version {
  static constexpr CommandInfo kInfo{
      .flag = "version", .summary = "print the version, with which plugins must be built"};
  bool version = false;
  FIELDS(version)

  CommandResult run(const CommandContext& context) const {
    fmt::print(context.out, "tessera {}\n", build_stamp());
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> version_command() { return command_of<Version>(); }

}  // namespace tessera
