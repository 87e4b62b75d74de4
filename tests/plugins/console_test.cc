// SPDX-License-Identifier: Apache-2.0
// Real processes whose output is closed or whose file size is limited: no signal ends them, and the
// exit code is correct.
#include <cstdlib>

#include "core/base/error.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// The exit code of the first program of a pipeline, or of a single program. It is above 128 if a
// signal ended the program. `script` is bash.
Outcome first_of(const TemporaryDirectory& folder, const std::string& script) {
  return bash(folder.path(), script + "\nexit ${PIPESTATUS[0]}");
}

TEST_CASE("a run without a console completes, and its log reports the lost output") {
  const TextFolder folder;
  const std::string run = tiny_command(200);
  for (const std::string redirection :
       {" | head -1", " >/dev/full", " >&-", " >&- 2>&-", " 2>&1 | head -1"}) {
    INFO(redirection);
    const Outcome outcome = successful(first_of(folder, run + " --restart" + redirection));
    REQUIRE(outcome.errors.empty());
    REQUIRE(losses_of(folder / "run").size() == 200);
    const std::string log = read_bytes(folder / "run/metrics.jsonl");
    REQUIRE_THAT(
        log, Contains("{\"event\": \"console_lost\", \"step\": ") && Contains("\"reason\": \""));
    REQUIRE_THAT(log, Catch::EndsWith("{\"event\": \"done\", \"step\": 200}\n"));
    // Console output is not written to any file of the run.
    REQUIRE_THAT(log, !Contains("tokens/s"));
  }
}

TEST_CASE("a run that fails without a console exits with 1, and its log has the error") {
  const TextFolder folder;
  const std::string fails = tiny_command(50) + " --set learning_rate=1e30";
  for (const std::string redirection : {" 2>&1 | head -1", " >&- 2>&-"}) {
    INFO(redirection);
    REQUIRE(first_of(folder, fails + " --restart" + redirection).exit_code == 1);
    REQUIRE_THAT(read_bytes(folder / "run/metrics.jsonl"),
                 Contains("{\"event\": \"failed\", \"step\": ") && Contains("steps in a row"));
  }
}

TEST_CASE("a run saves and exits with 0 on SIGHUP, and continues under nohup") {
  const TextFolder folder;
  // SIGHUP is sent once the run has taken a step.
  const std::string script =
      " --restart >/dev/null &\n"
      "until [ -s run/metrics.jsonl ] && grep -q loss run/metrics.jsonl; do sleep 0.01; done\n"
      "kill -HUP $!\nwait $!\nexit $?";
  successful(first_of(folder, tiny_command(100000) + script));
  REQUIRE_THAT(read_bytes(folder / "run/metrics.jsonl"), Contains("\"event\": \"preempt\""));
  std::filesystem::remove_all(folder / "run");  // The script waits for a loss in the log.
  REQUIRE(first_of(folder, "nohup " + tiny_command(400) + script).exit_code == 0);
  REQUIRE_THAT(read_bytes(folder / "run/metrics.jsonl"),
               Catch::EndsWith("{\"event\": \"done\", \"step\": 400}\n"));
}

TEST_CASE("a closed pipe is no error for programs that print; a full disk is an error") {
  const TextFolder folder;
  const std::string programs = fmt::format("'{}/bin/", TESSERA_BINARY_DIR);
  for (const std::string& command :
       {programs + "runexp' --list", programs + "runexp' --help",
        programs + "runexp' --exp=quickstart.CharLm --describe",
        programs + "runexp' --exp=quickstart.CharLm --diff=SourceLm",
        programs + "runexp' --exp=c4.Spmd1BSmoke --mode=plan --set ici_mesh_shape=[1,1,1]",
        programs + "flat_tokens' help"}) {
    INFO(command);
    const Outcome left = successful(first_of(folder, command + " | head -1"));
    REQUIRE(left.errors.empty());
    const Outcome full = with_code(1, first_of(folder, command + " >/dev/full"));
    REQUIRE_THAT(full.errors, Contains("cannot write to standard output: "));
  }
}

TEST_CASE("exceeding the file size limit is an error that names the file") {
  const TextFolder folder;
  const std::string run = tiny_command(60) + " --set task.train.save_interval_steps=20";
  bool one_ended_well = false;
  for (const int kilobytes : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 4096}) {
    INFO(kilobytes << " KiB");
    const Outcome outcome =
        first_of(folder, fmt::format("ulimit -f {}\n{} --restart >/dev/null", kilobytes, run));
    INFO(outcome.errors);
    one_ended_well = one_ended_well || outcome.exit_code == 0;
    if (outcome.exit_code == 0) continue;
    REQUIRE((outcome.exit_code == 1 || outcome.exit_code == 2));
    REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
    REQUIRE_THAT(outcome.errors, Catch::StartsWith("runexp: ") && Contains("File too large"));
  }
  REQUIRE(one_ended_well);
  // Without the limit the command succeeds.
  REQUIRE(first_of(folder, run + " >/dev/null").exit_code == 0);
  const std::string build = fmt::format(
      "ulimit -f 4\n'{}/bin/flat_tokens' build --output=t.h5 text.txt", TESSERA_BINARY_DIR);
  const Outcome built = with_code(1, first_of(folder, build));
  REQUIRE_THAT(built.errors, Contains("File too large"));
}

TEST_CASE("a resumed run reports lost log lines in one line") {
  const TextFolder folder;
  REQUIRE(shell(folder.path(), tiny_command(20)).exit_code == 0);
  const std::string whole = read_bytes(folder / "run/metrics.jsonl");
  const size_t begin = whole.find("{\"step\": 5, "), end = whole.find("{\"step\": 9, ");
  write_bytes(folder / "run/metrics.jsonl", whole.substr(0, begin) + whole.substr(end));
  const Outcome resumed = successful(shell(folder.path(), tiny_command(24)));
  REQUIRE_THAT(resumed.out, Contains("\nnote: metrics.jsonl lacks the lines of 4 training "
                                     "steps (5 to 8); the run continues without them\n"));
}

}  // namespace
}  // namespace tessera
