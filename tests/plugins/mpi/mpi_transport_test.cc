// SPDX-License-Identifier: Apache-2.0
// The transport between processes that mpirun starts, and runexp in several processes.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/mpirun.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// Whether tests of several processes can run here; if not, the test is reported as skipped.
bool can_run() {
  const std::string reason = why_no_mpirun();
  if (!reason.empty()) skip_test(reason);
  return reason.empty();
}

Outcome run(const std::string& options, const std::string& program, const std::string& arguments) {
  const TemporaryDirectory folder;
  Outcome outcome = shell(folder.path(), mpirun_command(options, program, arguments));
  UNSCOPED_INFO(outcome.out + outcome.errors);
  return outcome;
}

int64_t count_of(const std::string& text, const std::string& what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_CASE("messages of all sizes and tags arrive complete and in order", "[mpi]") {
  if (!can_run()) return;
  const Outcome outcome = successful(run("-n 3", "transport_trial", "messages"));
  REQUIRE(outcome.out == "passed\n");
}

TEST_CASE("a process that stops answering is named, and the others end", "[mpi]") {
  if (!can_run()) return;
  const Outcome outcome = run("-n 2", "transport_trial", "silent");
  REQUIRE(outcome.exit_code == 3);
  REQUIRE_THAT(outcome.out, Contains("process 0: process 1 (host ") &&
                                Contains(") did not reach 'the next step' within 0.5 s"));
  REQUIRE(outcome.seconds < 30);
}

TEST_CASE("abort ends all processes with its exit code", "[mpi]") {
  if (!can_run()) return;
  const Outcome outcome = run("-n 3", "transport_trial", "abort");
  REQUIRE(outcome.exit_code == 7);
  REQUIRE(outcome.seconds < 30);
}

TEST_CASE("a message of another size than its receive is an error", "[mpi]") {
  if (!can_run()) return;
  const auto [trial, error] = GENERATE(table<std::string, std::string>(
      {{"too_long", "the connection between the processes failed: MPI_Testsome: MPI_ERR_TRUNCATE"},
       {"too_short", "a message of 100 bytes matches a receive of 200 (tag 1000)"}}));
  const Outcome outcome = run("-n 2", "transport_trial", trial);
  REQUIRE(outcome.exit_code == 3);
  REQUIRE_THAT(outcome.out, Contains("process 1: ") && Contains(error));
  REQUIRE(outcome.seconds < 30);
}

TEST_CASE("a transport with an abandoned request cannot be used any more", "[mpi]") {
  if (!can_run()) return;
  const Outcome outcome = run("-n 2", "transport_trial", "abandoned");
  REQUIRE(outcome.exit_code == 3);
  REQUIRE_THAT(outcome.out, Contains("process 1: a message between the processes was abandoned"));
  REQUIRE(outcome.seconds < 30);
}

TEST_CASE("several processes print their output once", "[mpi]") {
  if (!can_run()) return;
  const Outcome outcome = successful(run("-n 3", "runexp", "--list"));
  REQUIRE(count_of(outcome.out, "quickstart.SourceLm") == 1);
}

TEST_CASE("an error of all processes is printed once, and all end with 2", "[mpi]") {
  if (!can_run()) return;
  const Outcome outcome = with_code(2, run("-n 3", "runexp", "--exp=nowhere.X"));
  REQUIRE(count_of(outcome.errors, "runexp: no experiment 'nowhere.X'") == 1);
  REQUIRE(count_of(outcome.errors, "runexp:") == 1);
}

TEST_CASE("an error of one process ends all with 2, and names the process", "[mpi]") {
  if (!can_run()) return;
  const std::string arguments = "--exp=quickstart.CharLm --set input.path=text.txt --dry_run";
  const TemporaryDirectory folder;
  write_bytes(folder / "text.txt", std::string(20000, 'x'));
  const Outcome outcome = with_code(
      2, shell(folder.path(),
               mpirun_two_commands(folder.path(), arguments, arguments + " --set num_layers=x")));
  REQUIRE_THAT(outcome.errors, Contains("runexp: process 1 (host ") && Contains("num_layers"));
  REQUIRE(count_of(outcome.errors, "runexp:") == 1);
  REQUIRE(outcome.seconds < 30);
}

}  // namespace
}  // namespace tessera
