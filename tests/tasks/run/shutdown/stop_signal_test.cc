// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/shutdown/stop_signal.h"

#include <atomic>
#include <csignal>
#include <map>
#include <string>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("a repeated stop signal, as Slurm sends at a time limit, is one stop request") {
  const StopSignal stop;
  const std::map<int, std::string> names = {
      {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"},     {SIGUSR2, "SIGUSR2"},
      {SIGXCPU, "SIGXCPU"}, {SIGALRM, "SIGALRM"},     {SIGHUP, "SIGHUP"},
      {SIGPROF, "SIGPROF"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPWR, "SIGPWR"}};
  for (const auto& [signal, name] : names) {
    REQUIRE(StopSignal::name(signal) == name);
    for (int i = 0; i < 2; ++i) std::raise(signal);
    REQUIRE(stop.requested() == signal);
  }
}

TEST_CASE("a signal that is ignored or used otherwise when a run begins stays so") {
  for (const int signal : {SIGHUP, SIGUSR2, SIGPROF}) {
    std::signal(signal, SIG_IGN);
    {
      const StopSignal stop;
      std::raise(signal);
      REQUIRE(stop.requested() == 0);
    }
    std::signal(signal, SIG_DFL);
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

TEST_CASE("a deadline that is met calls nothing and does not wait") {
  std::atomic<int> missed = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Deadline deadline(std::chrono::seconds(60), [&] { ++missed; });
  }
  REQUIRE(missed == 0);
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

TEST_CASE("a missed deadline calls its callback once") {
  std::atomic<int> missed = 0;
  const Deadline deadline(std::chrono::milliseconds(5), [&] { ++missed; });
  while (missed == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(missed == 1);
}

}  // namespace
}  // namespace tessera
