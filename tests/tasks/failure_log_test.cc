// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/failure_log.h"

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

TEST_CASE("each failure is logged as one line with the time") {
  const TemporaryDirectory directory;
  log_failure(directory.path(), "process 1 (host b) is missing");
  log_failure(directory.path(), "of two\nlines");
  const std::string text = read_bytes(directory / "failures.log");
  const std::string time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ ";
  REQUIRE_THAT(text, Catch::Matchers::Matches(time + "process 1 \\(host b\\) is missing\n" + time +
                                              "of two lines\n"));
}

TEST_CASE("no failure is logged through a link or into a missing directory") {
  const TemporaryDirectory directory;
  write_bytes(directory / "target", "as it was");
  std::filesystem::create_symlink("target", directory / "failures.log");
  log_failure(directory.path(), "a failure");
  REQUIRE(read_bytes(directory / "target") == "as it was");
  log_failure(directory / "none", "a failure");
  REQUIRE_FALSE(std::filesystem::exists(directory / "none"));
}

}  // namespace
}  // namespace tessera
