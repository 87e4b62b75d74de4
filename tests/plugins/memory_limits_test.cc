// SPDX-License-Identifier: Apache-2.0
// Programs in an address space that is too small: each ends with one line that says so, whatever
// the limit, and none by a signal.
#include <algorithm>
#include <string>

#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/compiler.h"
#include "tests/support/compress.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// Runs the command with limits in MB; returns how many of them it completes with.
int completed(const TemporaryDirectory& folder, const std::string& command, int first, int last,
              int step) {
  int count = 0;
  for (int limit = first; limit <= last; limit += step) {
    const Outcome outcome =
        bash(folder.path(), fmt::format("ulimit -v {}\n{} >/dev/null\n", limit * 1000, command));
    INFO(limit << " MB: " << outcome.exit_code << " " << outcome.errors);
    // 127: the loader cannot map the program's libraries.
    REQUIRE((outcome.exit_code == 0 || outcome.exit_code == 1 || outcome.exit_code == 2 ||
             outcome.exit_code == 127));
    if (outcome.exit_code == 0) ++count;
    if (outcome.exit_code == 0 || outcome.exit_code == 127) continue;
    REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
    REQUIRE_THAT(outcome.errors, Catch::Contains("out of memory") || Catch::Contains("ulimit -v") ||
                                     Catch::Contains("are available"));
  }
  return count;
}

std::string build_command(int threads) {
  return fmt::format("'{}/bin/flat_tokens' build --threads={} --output=t.h5 --overwrite text.txt",
                     TESSERA_BINARY_DIR, threads);
}

void sweep(int step) {
  if (kSanitized) return skip_test("a sanitizer's address space cannot be limited");
  const TextFolder folder;
  REQUIRE(completed(folder, tiny_command(2) + " --restart", 44, 244, step) > 0);
  REQUIRE(completed(folder, build_command(16), 44, 1244, 6 * step) > 0);
}

TEST_CASE("with too little memory a program ends with one line and no signal") { sweep(25); }

TEST_CASE("the same for many limits", "[full]") { sweep(3); }

TEST_CASE("a window of Zstandard for which memory lacks is no damage") {
  if (kSanitized) return skip_test("a sanitizer's address space cannot be limited");
  const TemporaryDirectory folder;
  write_bytes(folder / "text.txt.zst", zstd("some text", 31));
  const std::string command = build_command(1) + ".zst";
  const Outcome outcome = with_code(1, bash(folder.path(), "ulimit -v 1000000\n" + command));
  REQUIRE_THAT(outcome.errors, Catch::Contains("text.txt.zst: out of memory for decompression"));
}

}  // namespace
}  // namespace tessera
