// SPDX-License-Identifier: Apache-2.0
#include "inputs/prefetch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Contains;

int64_t number(const std::optional<Batch>& batch) {
  return batch ? *batch->at("ids").data<int64_t>() : -1;
}

// Batches that contain their number. Optionally slow, finite or failing.
class Counting final : public BaseInput {
 public:
  struct Behaviour {
    int64_t end = 1000000;
    int64_t fails_at = -1;
    std::chrono::microseconds delay{0};
  };
  Counting(const Behaviour& behaviour, std::atomic<int64_t>* made)
      : behaviour_(behaviour), made_(made) {}

  const std::string& name() const override { return name_; }
  int64_t global_batch_size() const override { return 1; }
  void attach(const Infeed&) override {}
  int64_t vocab_size() const override { return 9; }
  Batch specification() const override { return {}; }
  std::optional<Batch> get_next() override {
    std::this_thread::sleep_for(behaviour_.delay);
    if (position_ == behaviour_.fails_at) fail("broken at {}", position_);
    if (position_ >= behaviour_.end) return std::nullopt;
    Batch batch;
    HostArray& ids = batch["ids"];
    ids.bytes.resize(sizeof(int64_t));
    *ids.data<int64_t>() = position_++;
    ++*made_;
    return batch;
  }
  std::optional<Batch> peek() override { return std::nullopt; }
  void recycle(Batch batch) override { returned_.push_back(number(batch)); }
  const std::vector<int64_t>& returned() const { return returned_; }
  void reset() override { position_ = 0; }
  InputState state() const override { return {position_, {}}; }
  void restore(const InputState& state) override { position_ = state.position; }

 private:
  Behaviour behaviour_;
  std::atomic<int64_t>* made_;
  std::string name_ = "counting";
  int64_t position_ = 0;
  std::vector<int64_t> returned_;
};

class Fixture {
 public:
  explicit Fixture(const Counting::Behaviour& behaviour, int64_t depth = 3)
      : input(std::make_unique<Counting>(behaviour, &made), depth) {}
  std::atomic<int64_t> made{0};
  Prefetch input;
};

TEST_CASE("prefetched batches are in order, and the end is permanent") {
  Fixture fixture({.end = 20});
  for (int64_t i = 0; i < 20; ++i) {
    REQUIRE(fixture.input.state().position == i);
    REQUIRE(number(fixture.input.get_next()) == i);
  }
  REQUIRE_FALSE(fixture.input.get_next());
  REQUIRE_FALSE(fixture.input.get_next());
  REQUIRE(fixture.input.state().position == 20);
  fixture.input.reset();
  REQUIRE(number(fixture.input.get_next()) == 0);
}

TEST_CASE("prefetch works ahead up to its depth") {
  Fixture fixture({}, 3);
  REQUIRE(number(fixture.input.get_next()) == 0);
  while (fixture.made < 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(fixture.made == 4);
  REQUIRE(fixture.input.state().position == 1);  // Counts batches returned, not prefetched.
}

TEST_CASE("peek at prefetched batches does not advance") {
  Fixture fixture({});
  REQUIRE(number(fixture.input.peek()) == 0);
  REQUIRE(number(fixture.input.peek()) == 0);
  REQUIRE(fixture.input.state().position == 0);
  REQUIRE(number(fixture.input.get_next()) == 0);
  REQUIRE(number(fixture.input.peek()) == 1);
}

TEST_CASE("an exception of the input is rethrown by the call for the failed batch") {
  Fixture fixture({.fails_at = 2});
  REQUIRE(number(fixture.input.get_next()) == 0);
  REQUIRE(number(fixture.input.get_next()) == 1);
  REQUIRE_THROWS_WITH(fixture.input.peek(), Contains("broken at 2"));
  REQUIRE_THROWS_WITH(fixture.input.get_next(), Contains("broken at 2"));
  REQUIRE(fixture.input.state().position == 2);
  fixture.input.restore({5, {}});
  REQUIRE(number(fixture.input.get_next()) == 5);
}

TEST_CASE("the time spent waiting for a slow input is reported") {
  Fixture fixture({.delay = std::chrono::milliseconds(20)});
  fixture.input.get_next();
  fixture.input.get_next();
  REQUIRE(fixture.input.take_wait_seconds() > 0.025);
  REQUIRE(fixture.input.take_wait_seconds() == 0.0);
  while (fixture.made < 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  fixture.input.get_next();
  REQUIRE(fixture.input.take_wait_seconds() == 0.0);  // It was ready.
}

TEST_CASE("prefetch can be stopped, reset and restored at any moment") {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    Fixture fixture({.end = 40, .delay = std::chrono::microseconds(random() % 50)},
                    1 + random() % 5);
    int64_t expected = 0;
    for (int step = 0; step < 10; ++step) {
      switch (random() % 4) {
        case 0:
          fixture.input.reset();
          expected = 0;
          break;
        case 1:
          expected = random() % 45;
          fixture.input.restore({expected, {}});
          break;
        default:
          for (int i = 0; i < 3; ++i) {
            REQUIRE(fixture.input.state().position == expected);
            REQUIRE(number(fixture.input.get_next()) == (expected < 40 ? expected : -1));
            if (expected < 40) ++expected;
          }
      }
    }
  }
}

TEST_CASE("a recycled batch reaches the input before it makes the next batch") {
  std::atomic<int64_t> made = 0;
  auto owned = std::make_unique<Counting>(Counting::Behaviour{.end = 10}, &made);
  const Counting& input = *owned;
  Prefetch prefetch(std::move(owned), 2);
  for (int i = 0; i < 10; ++i) prefetch.recycle(*prefetch.get_next());
  REQUIRE_FALSE(prefetch.get_next());
  prefetch.reset();  // Stops the thread.
  REQUIRE(input.returned().size() >= 6);
  REQUIRE(std::is_sorted(input.returned().begin(), input.returned().end()));
}

}  // namespace
}  // namespace tessera
