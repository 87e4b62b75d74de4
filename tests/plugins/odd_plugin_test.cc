// SPDX-License-Identifier: Apache-2.0
// The output of programs when something outside of them is faulty: exceptions of a plugin's
// experiment, the terminal, and the environment that a launcher left.
#include <algorithm>
#include <string>

#include "tests/plugins/fixtures.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

Outcome runexp(const TemporaryDirectory& folder, const std::string& arguments,
               const std::string& environment = "") {
  return bash(folder.path(),
              fmt::format("{} '{}/bin/runexp' {}", environment, TESSERA_BINARY_DIR, arguments));
}

TEST_CASE("an exception of an experiment names its class, its function and its file") {
  const TemporaryDirectory folder;
  const std::string plugin = fmt::format(" --plugin_path='{}'", fixture("thrower").string());
  struct Row {
    std::string arguments, thrown, where;
  };
  std::vector<Row> rows = {
      {"--exp=thrower.Shrunk --smoke", "boom", "thrower::Shrunk::shrink()"},
      {"--exp=thrower.Unmade --describe", "of type int", "the constructor of thrower::Unmade"}};
  for (const std::string function : {"build()", "validate()", "missing_data()", "search()"}) {
    const std::string flags = function == "search()" ? " --mode=sweep" : "";
    const std::string command =
        fmt::format("--exp=thrower.Wild{} --set where='{}'", flags, function);
    rows.push_back({command, "boom", "thrower::Wild::" + function});
    rows.push_back({command + " --set is_number=true", "an exception of type int",
                    "thrower::Wild::" + function});
  }
  for (const Row& row : rows) {
    const Outcome outcome = runexp(folder, row.arguments + plugin);
    INFO(row.arguments << "\n" << outcome.errors);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(std::ranges::count(outcome.errors, '\n') == 1);
    REQUIRE_THAT(outcome.errors, Catch::StartsWith("runexp: ") && Contains(row.thrown) &&
                                     Contains("[in " + row.where + " of ") &&
                                     Contains("/thrower.so]"));
  }
}

TEST_CASE("a dumb terminal gets no escape sequences") {
  if (bash(".", "command -v script").exit_code != 0) return skip_test("needs the program script");
  const TextFolder folder;
  const auto printed = [&](const std::string& terminal) {
    write_bytes(folder / "command.sh", tiny_command(30) + " --restart\n");
    return bash(folder.path(),
                "TERM=" + terminal + " script -qec 'bash command.sh' /dev/null </dev/null")
        .out;
  };
  const std::string dumb = printed("dumb");
  REQUIRE_THAT(dumb, Contains("step") && !Contains("\x1b"));
  REQUIRE_THAT(printed("xterm"), Contains("\x1b["));
}

TEST_CASE("variables that a launcher left are named, and no other MPI is suspected") {
  const TemporaryDirectory folder;
  const Outcome outcome =
      with_code(2, runexp(folder, "--version", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2"));
  REQUIRE_THAT(outcome.errors, Contains("its environment has variables that a launcher left") &&
                                   Contains("unset them") && !Contains("another MPI"));
}

TEST_CASE("standard input is refused as text") {
  const TemporaryDirectory folder;
  for (const std::string& command :
       {fmt::format("'{}/bin/runexp' --exp=quickstart.CharLm --dry_run --set input.path=-",
                    TESSERA_BINARY_DIR),
        fmt::format("'{}/bin/flat_tokens' build --output=o.h5 -", TESSERA_BINARY_DIR)}) {
    const Outcome outcome = bash(folder.path(), "echo text | " + command);
    INFO(command << "\n" << outcome.errors);
    REQUIRE(outcome.exit_code != 0);
    REQUIRE_THAT(outcome.errors, Contains("standard input is not read: write the text to a file"));
  }
}

}  // namespace
}  // namespace tessera
