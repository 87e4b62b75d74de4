// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/transport.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

TEST_CASE("a deadline expires after its timeout, and is nearly expired shortly before") {
  const WaitDeadline::Clock::time_point begin{};
  WaitDeadline deadline(10s, begin);
  for (auto time = 0ms; time < 10s; time += 50ms) {
    INFO(time.count());
    REQUIRE_FALSE(deadline.poll(begin + time));
    REQUIRE(deadline.nearly_expired() == (time >= 9s));
  }
  REQUIRE(deadline.poll(begin + 10s));
  REQUIRE(deadline.suspension_note().empty());
}

TEST_CASE("a deadline does not expire because this process was suspended") {
  const WaitDeadline::Clock::time_point begin{};
  WaitDeadline deadline(10s, begin);
  REQUIRE_FALSE(deadline.poll(begin + 500ms));
  // After a suspension of 20 s, the whole timeout is left.
  REQUIRE_FALSE(deadline.poll(begin + 20500ms));
  REQUIRE_FALSE(deadline.nearly_expired());
  for (auto time = 20550ms; time < 30500ms; time += 50ms)
    REQUIRE_FALSE(deadline.poll(begin + time));
  REQUIRE(deadline.poll(begin + 30500ms));
  REQUIRE_THAT(deadline.suspension_note(), Contains("suspended for 20.0 s"));
}

TEST_CASE("work between two waits is not counted as a suspension") {
  const WaitDeadline::Clock::time_point begin{};
  WaitDeadline deadline(10s, begin);
  REQUIRE_FALSE(deadline.poll(begin + 50ms));
  deadline.resume(begin + 5050ms);
  REQUIRE_FALSE(deadline.poll(begin + 5100ms));
  REQUIRE(deadline.suspension_note().empty());
  // The timeout was not restarted, and the 5 s do not count.
  for (auto time = 5150ms; time < 15s; time += 50ms) REQUIRE_FALSE(deadline.poll(begin + time));
  REQUIRE(deadline.poll(begin + 15s));
  REQUIRE(deadline.suspension_note().empty());
}

TEST_CASE("short work between waits counts against the timeout") {
  const WaitDeadline::Clock::time_point begin{};
  WaitDeadline deadline(10s, begin);
  for (auto time = 900ms; time < 10s; time += 900ms) deadline.resume(begin + time);
  REQUIRE(deadline.poll(begin + 10s));
}

}  // namespace
}  // namespace tessera
