// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/patience.h"

#include "core/runtime/comm/waits.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("patience ends with its limit, and warns a little before") {
  const Patience::Clock::time_point begin{};
  Patience patience(10s, begin);
  for (auto time = 0ms; time < 10s; time += 50ms) {
    INFO(time.count());
    REQUIRE_FALSE(patience.look(begin + time));
    REQUIRE(patience.is_nearly_over() == (time >= 9s));
  }
  REQUIRE(patience.look(begin + 10s));
  REQUIRE(patience.held_up().empty());
}

TEST_CASE("while a process is stopped itself, its patience with others does not run out") {
  const Patience::Clock::time_point begin{};
  Patience patience(10s, begin);
  REQUIRE_FALSE(patience.look(begin + 500ms));
  // It was stopped for 20 s, and has the whole limit again.
  REQUIRE_FALSE(patience.look(begin + 20500ms));
  REQUIRE_FALSE(patience.is_nearly_over());
  for (auto time = 20550ms; time < 30500ms; time += 50ms)
    REQUIRE_FALSE(patience.look(begin + time));
  REQUIRE(patience.look(begin + 30500ms));
  REQUIRE_THAT(patience.held_up(), Contains("held up for 20.0 s"));
}

TEST_CASE("a process's own work between two waits is no time in which it was stopped") {
  const Patience::Clock::time_point begin{};
  Patience patience(10s, begin);
  REQUIRE_FALSE(patience.look(begin + 50ms));
  patience.resume(begin + 5050ms);
  REQUIRE_FALSE(patience.look(begin + 5100ms));
  REQUIRE(patience.held_up().empty());
  // The limit did not begin again, and the 5 s are not part of it.
  for (auto time = 5150ms; time < 15s; time += 50ms) REQUIRE_FALSE(patience.look(begin + time));
  REQUIRE(patience.look(begin + 15s));
  REQUIRE(patience.held_up().empty());
}

TEST_CASE("short work between waits counts against the limit") {
  const Patience::Clock::time_point begin{};
  Patience patience(10s, begin);
  for (auto time = 900ms; time < 10s; time += 900ms) patience.resume(begin + time);
  REQUIRE(patience.look(begin + 10s));
}

TEST_CASE("what waits is told while it is asked, the first one first") {
  Waits waits;
  REQUIRE(waits.stalled(1s).empty());
  const Waits::Entry first = waits.add([](auto least) { return least > 1s ? "" : "first"; });
  {
    const Waits::Entry second = waits.add([](auto) { return "second"; });
    REQUIRE(waits.stalled(1s) == "first");
    REQUIRE(waits.stalled(2s) == "second");
  }
  REQUIRE(waits.stalled(2s).empty());
}

}  // namespace
}  // namespace tessera
