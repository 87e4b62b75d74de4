// SPDX-License-Identifier: Apache-2.0
#include "tasks/shutdown/stop_signal.h"

#include <csignal>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("a repeated stop signal, as Slurm sends at a time limit, is one stop request") {
  const StopSignal stop;
  for (const int signal : {SIGTERM, SIGUSR1}) {
    for (int i = 0; i < 2; ++i) std::raise(signal);
    REQUIRE(stop.requested() == signal);
  }
}

TEST_CASE("a second Ctrl-C has the default action") {
  const StopSignal stop;
  std::raise(SIGINT);
  struct sigaction action = {};
  sigaction(SIGINT, nullptr, &action);
  REQUIRE(action.sa_handler == SIG_DFL);
}

TEST_CASE("a handler that only reports does not stop, and handled signals are cleared") {
  const StopSignal reports(StopSignal::Answer::kReports);
  REQUIRE_FALSE(StopSignal::anybody_stops());
  {
    const StopSignal stops;
    REQUIRE(StopSignal::anybody_stops());
    std::raise(SIGTERM);
    REQUIRE(reports.requested() == SIGTERM);
    REQUIRE_FALSE(StopSignal::is_heeded());
    StopSignal::heed();
    REQUIRE(StopSignal::is_heeded());
  }
  REQUIRE_FALSE(StopSignal::anybody_stops());
  REQUIRE_FALSE(StopSignal::is_heeded());
  REQUIRE(reports.requested() == 0);
}

}  // namespace
}  // namespace tessera
