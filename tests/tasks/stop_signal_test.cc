// SPDX-License-Identifier: Apache-2.0
#include "tasks/shutdown/stop_signal.h"

#include <csignal>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("a stop that is asked for twice, as Slurm does at a time limit, is still a stop") {
  const StopSignal stop;
  for (const int signal : {SIGTERM, SIGUSR1}) {
    for (int i = 0; i < 2; ++i) std::raise(signal);
    REQUIRE(stop.requested() == signal);
  }
}

TEST_CASE("a second Ctrl-C is left to the system") {
  const StopSignal stop;
  std::raise(SIGINT);
  struct sigaction action = {};
  sigaction(SIGINT, nullptr, &action);
  REQUIRE(action.sa_handler == SIG_DFL);
}

TEST_CASE("who only reports a signal is no stop, and forgets one that was answered") {
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
