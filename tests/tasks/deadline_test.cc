// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "tasks/shutdown/stop_signal.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

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
