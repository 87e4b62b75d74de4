// SPDX-License-Identifier: Apache-2.0
// The scripts that ./runexp and ./runtests share: which targets a command line needs, and the
// progress messages during a build. These tests build nothing.
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// Runs bash code after sourcing cmake/launch.sh; returns both output streams.
std::string launcher_output(const std::string& script) {
  const std::string command = fmt::format("bash -c 'source {}/cmake/launch.sh; {}' runexp 2>&1",
                                          TESSERA_SOURCE_DIR, script);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 256> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) text += buffer.data();
  return text;
}

TEST_CASE("a command line with one family of experiments needs only that family") {
  REQUIRE(launcher_output("family_of --exp=quickstart.SourceLm --dry_run") == "quickstart\n");
  REQUIRE(launcher_output("family_of --threads=2 --exp c4.Spmd1B") == "c4\n");
}

TEST_CASE("a command line that may need other families needs all programs") {
  const char* arguments[] = {"--list",
                             "--exp=SourceLm",
                             "--exp=quickstart.SourceLm --list",
                             "--exp=quickstart.SourceLm --diff=c4.Spmd1B",
                             "--exp=elsewhere.Tiny",
                             "--exp=../core.X",
                             "--version",
                             ""};
  for (const char* each : arguments) {
    CAPTURE(each);
    REQUIRE(launcher_output(fmt::format("family_of {}", each)).empty());
  }
}

TEST_CASE("a new project needs only runexp and no experiments") {
  const std::string said = "is_stale() { true; }; build_targets() { echo \"$@\"; exit; }; ";
  REQUIRE(launcher_output(said + "launch runexp new letters") == "runexp build runexp\n");
  REQUIRE(launcher_output(said + "launch runexp --list") == "programs build programs\n");
}

TEST_CASE("completion is asked of what is built, and builds nothing") {
  const std::string said = "is_stale() { true; }; build_targets() { echo \"$@\"; exit; }; ";
  REQUIRE(launcher_output(said + "build=/nowhere; launch runexp --completion=bash") ==
          "runexp: nothing is built that could complete; run ./runexp --help once\n");
  REQUIRE_THAT(launcher_output(said + fmt::format("build={}; launch runexp --completion=bash",
                                                  TESSERA_BINARY_DIR)),
               Catch::Contains("complete -o default -F"));
}

TEST_CASE("a run on another kind of device needs the device plugins, too") {
  const std::string said = "is_stale() { true; }; build_targets() { echo \"$@\"; exit; }; ";
  for (const char* device : {"--device=cuda", "--device cuda", "--against=device:cuda",
                             "--against device:cuda", "--kernels_of=cuda"})
    REQUIRE_THAT(launcher_output(fmt::format("{}launch runexp --exp=c4.Spmd1B {}", said, device)),
                 Catch::StartsWith("c4.devices build runexp transports experiment_c4") &&
                     Catch::EndsWith(" devices\n"));
  for (const char* device : {"--device=cpu", "--device=reference", "--against=threads:1"})
    REQUIRE_THAT(launcher_output(fmt::format("{}launch runexp --exp=c4.Spmd1B {}", said, device)),
                 Catch::StartsWith("c4 build ") && !Catch::Contains("devices"));
}

TEST_CASE("gpu_check without nvcc is one sentence, after the build was configured again") {
  const TemporaryDirectory scratch;
  const std::string said = fmt::format(
      "build={}; touch $build/build.ninja; install_packages() {{ :; }}; mpi_is_new() {{ false; }}; "
      "run_logged() {{ echo $1; }}; ",
      scratch.path().string());
  const std::string built = launcher_output(said + "build_targets gpu_check build gpu_check");
  REQUIRE_THAT(built, Catch::StartsWith("configuring\nrunexp: this build has no CUDA device; ") &&
                          Catch::EndsWith("(docs/cuda.md)\n"));
  std::ofstream(scratch / "build.ninja") << "build gpu_check: phony bin/gpu_check\n";
  REQUIRE(launcher_output(said + "build_targets gpu_check build gpu_check") == "building\n");
}

TEST_CASE("progress is parsed from the output of ninja and apt") {
  const TemporaryDirectory scratch;
  const std::string log = (scratch / "log").string();
  const auto steps = [&](const char* text) {
    std::ofstream(log) << text;
    return launcher_output("steps_of " + log);
  };
  REQUIRE(steps("Reading package lists...\n").empty());
  REQUIRE(steps("[0/2] Re-checking\n[1/40] Building a\nnote: [9/9]\n[12/40] Linking b\n") ==
          "12 40\n");
  REQUIRE(steps("0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.\n"
                "Get:1 a\nGet:2 b\nUnpacking a\n") == "3 6\n");
}

TEST_CASE("progress includes an estimate of the remaining time after the first steps") {
  REQUIRE(launcher_output("progress_text building 5 1 40") == "building: 1 of 40 steps, 5 s\n");
  REQUIRE(launcher_output("progress_text building 100 10 40") ==
          "building: 10 of 40 steps, 1 min 40 s, about 5 min 0 s left\n");
  REQUIRE(launcher_output("progress_text configuring 3") == "configuring: 3 s\n");
}

TEST_CASE("a command's output goes to the log, and its exit code is returned") {
  const TemporaryDirectory scratch;
  const std::string log = (scratch / "log").string();
  REQUIRE(launcher_output(fmt::format("with_progress building {} bash -c \"echo deep; exit 3\"; "
                                      "echo code $?; cat {}",
                                      log, log)) == "code 3\ndeep\n");
}

}  // namespace
}  // namespace tessera
