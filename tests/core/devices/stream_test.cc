// SPDX-License-Identifier: Apache-2.0
// Streams: work in order, events between streams, failures, and a device whose memory the host
// cannot touch.
#include "core/devices/cpu/stream.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

class Action final : public HostKernel {
 public:
  explicit Action(std::function<void()> action) : action_(std::move(action)) {}
  void run(const HostArgs&) override { action_(); }

 private:
  std::function<void()> action_;
};

TEST_CASE("a stream of a thread works in order, and beside its caller") {
  const auto stream = make_thread_stream();
  std::atomic<bool> released = false;
  std::vector<int> order;
  Action first([&] {
    while (!released) std::this_thread::yield();
    order.push_back(1);
  });
  Action second([&] { order.push_back(2); });
  LaunchTime time;
  for (int round = 0; round < 2; ++round) {
    released = false;
    stream->launch(first, {}, &time);
    stream->launch(second, {});
    released = true;  // The calls have returned before the work is done.
    stream->synchronize();
  }
  REQUIRE(order == std::vector<int>{1, 2, 1, 2});
  REQUIRE(time.end_ns >= time.begin_ns);
  REQUIRE(time.begin_ns > 0);
}

TEST_CASE("an event orders the work of two streams, each time it is recorded") {
  const auto producer = make_thread_stream(), consumer = make_thread_stream();
  const auto event = make_host_event();
  int value = 0, seen = 0;
  consumer->wait(*event);  // It was never recorded.
  consumer->synchronize();
  for (int round = 1; round <= 20; ++round) {
    Action produce([&] {
      std::this_thread::sleep_for(milliseconds(1));
      value = round;
    });
    Action consume([&] { seen = value; });
    producer->launch(produce, {});
    producer->record(*event);
    consumer->wait(*event);
    consumer->launch(consume, {});
    consumer->synchronize();
    REQUIRE(seen == round);
    producer->synchronize();
  }
}

TEST_CASE("a failure ends its stream and those that wait for it, with its own message") {
  const auto failing = make_thread_stream(), waiting = make_thread_stream();
  const auto caller = make_inline_stream();
  const auto event = make_host_event();
  bool ran = false;
  Action fails([] { fail("the kernel failed"); });
  Action runs([&] { ran = true; });
  failing->launch(fails, {});
  failing->launch(runs, {});
  failing->record(*event);
  waiting->wait(*event);
  waiting->launch(runs, {});
  REQUIRE_THROWS_WITH(caller->wait(*event), "the kernel failed");
  for (int again = 0; again < 2; ++again) {
    REQUIRE_THROWS_WITH(failing->synchronize(), "the kernel failed");
    REQUIRE_THROWS_WITH(waiting->synchronize(), "the kernel failed");
  }
  REQUIRE_FALSE(ran);
}

TEST_CASE("the events of a destroyed stream happen, as failures") {
  const auto event = make_host_event();
  const auto other = make_thread_stream();
  Action slow([] { std::this_thread::sleep_for(milliseconds(20)); });
  {
    const auto stream = make_thread_stream();
    stream->launch(slow, {});
    stream->launch(slow, {});
    stream->record(*event);
    other->wait(*event);
  }
  REQUIRE_THROWS_WITH(other->synchronize(), "the stream was ended");
}

TEST_CASE("bytes reach a guarded device by copies alone") {
  const std::unique_ptr<Device> device =
      std::move(find_device_kind("guarded").make_devices(1, 1, 0)[0]);
  const DeviceAddress memory = device->allocate(4096);
  const auto stream = device->make_stream(StreamUse::kCompute);
  std::vector<std::byte> bytes(100, std::byte{7});
  stream->copy_from_host(memory + 5, bytes);
  bytes.assign(100, std::byte{9});  // The copy has its own.
  std::vector<std::byte> back(102);
  stream->copy_to_host(back, memory + 4);
  stream->synchronize();
  REQUIRE(back.front() == std::byte{0});
  REQUIRE(back.back() == std::byte{0});
  REQUIRE(std::count(back.begin(), back.end(), std::byte{7}) == 100);
  device->map(memory + 5, 100, HostAccess::kUpdate, [](std::span<std::byte> all) {
    REQUIRE(all[99] == std::byte{7});
    all[0] = std::byte{1};
  });
  device->map(memory + 5, 2, HostAccess::kRead, [](std::span<const std::byte> first) {
    REQUIRE(first[0] == std::byte{1});
    REQUIRE(first[1] == std::byte{7});
  });
  // Used as a pointer, the address ends the process.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    const volatile std::byte* pointer = pointer_to(memory);
    _exit(pointer[0] == std::byte{0} ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  const bool faulted = WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 1);
  REQUIRE(faulted);  // Sanitizers exit with a code of their own.
  device->release(memory, 4096);
}

}  // namespace
}  // namespace tessera
