// SPDX-License-Identifier: Apache-2.0
// Programs in a limited address space that has room for only some of their threads: each exits with
// an error of one line until all threads fit, and none aborts.
#include <algorithm>

#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/compiler.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// Every thread reserves a stack of 1 GiB, so that the limit bounds their number.
Outcome limited(const TemporaryDirectory& folder, double gibibytes, const std::string& command) {
  return bash(folder.path(), fmt::format("ulimit -s 1048576\nulimit -v {}\n{}",
                                         static_cast<int64_t>(gibibytes * 1048576), command));
}

// Returns for how many of the limits starting a thread failed.
int sweep(const TemporaryDirectory& folder, const std::string& command, double most) {
  int refused = 0;
  for (double gibibytes = 1.25; gibibytes <= most; gibibytes += 1.0) {
    const Outcome outcome = limited(folder, gibibytes, command);
    INFO(gibibytes << " GiB: " << outcome.errors);
    REQUIRE((outcome.exit_code == 0 || outcome.exit_code == 1 || outcome.exit_code == 2));
    if (outcome.exit_code == 0) continue;
    REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
    // Near the size of a thread's stack, the limit can make another allocation fail, which is a
    // different error.
    if (outcome.errors.find("the system refuses to start another thread") != std::string::npos)
      ++refused;
    REQUIRE_THAT(outcome.errors, !Contains("terminate"));
  }
  REQUIRE(limited(folder, most + 4.0, command).exit_code == 0);
  return refused;
}

TEST_CASE("a program that cannot start its threads reports it and exits") {
  if (kSanitized) return skip_test("a sanitizer's address space cannot be limited");
  const TextFolder folder;
  std::string run = tiny_command(4) + " --restart --devices=2 --set ici_mesh_shape=[1,2,1]";
  run.replace(run.find("--threads=1"), 11, "--threads=6");
  REQUIRE(sweep(folder, run + " >/dev/null", 12.0) >= 4);
  const std::string tool = fmt::format("'{}/bin/flat_tokens' ", TESSERA_BINARY_DIR);
  // With fewer workers the same file is written.
  REQUIRE(limited(folder, 3.5, tool + "build --threads=6 --output=few.h5 text.txt").exit_code == 0);
  REQUIRE(limited(folder, 12.0, tool + "build --threads=6 --output=all.h5 text.txt").exit_code ==
          0);
  REQUIRE(read_bytes(folder / "few.h5") == read_bytes(folder / "all.h5"));
}

}  // namespace
}  // namespace tessera
