// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/process_group.h"

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "core/runtime/comm/transport.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// Runs `body` in each of `size` processes. Returns the message of each one's error, or "".
std::vector<std::string> run_processes(int size, const std::function<void(ProcessGroup&)>& body,
                                       std::chrono::milliseconds timeout = 20s) {
  const auto transports = make_loopback(size, {"a", "a", "b", "b"});
  std::vector<std::string> thrown(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ProcessGroup processes(transports[static_cast<size_t>(rank)], timeout);
      try {
        body(processes);
      } catch (const Error& error) {
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

TEST_CASE("broadcast, all_gather and all_reduce_max give every process the same result",
          "[processes]") {
  const std::string large(5000, 'x');
  std::vector<std::string> first(4);
  std::vector<std::vector<std::string>> all(4);
  std::vector<int64_t> most(4);
  const auto thrown = run_processes(4, [&](ProcessGroup& processes) {
    const auto rank = static_cast<size_t>(processes.rank());
    processes.barrier("the start");
    first[rank] = processes.broadcast("from " + std::to_string(rank) + large);
    all[rank] = processes.all_gather(rank == 2 ? large : std::to_string(rank));
    most[rank] = processes.all_reduce_max(rank == 1 ? 7 : -static_cast<int64_t>(rank));
    processes.barrier("the end");
  });
  REQUIRE(thrown == std::vector<std::string>(4));
  for (size_t rank = 0; rank < 4; ++rank) {
    REQUIRE(first[rank] == "from 0" + large);
    REQUIRE(all[rank] == std::vector<std::string>{"0", "1", large, "3"});
    REQUIRE(most[rank] == 7);
  }
}

TEST_CASE("collectives of a single process return its own values", "[processes]") {
  ProcessGroup processes;
  REQUIRE(processes.is_first());
  REQUIRE(processes.size() == 1);
  processes.barrier("the start");
  REQUIRE(processes.broadcast("text") == "text");
  REQUIRE(processes.all_gather("text") == std::vector<std::string>{"text"});
  REQUIRE(processes.all_reduce_max(-3) == -3);
  REQUIRE(processes.fail_together("broken", 2, 1ms)->exit_code == 2);
}

TEST_CASE("groups with different channels do not interfere", "[processes]") {
  // Two threads of each process use a channel each. Catch2 is not thread-safe, so they only count.
  std::atomic<int> wrong{0};
  const auto thrown = run_processes(3, [&](ProcessGroup& processes) {
    ProcessGroup other(processes.transport(), 20s, 1);
    std::thread second([&] {
      for (int64_t i = 0; i < 20; ++i)
        if (other.all_reduce_max(i * processes.rank()) != 2 * i) ++wrong;
    });
    for (int64_t i = 0; i < 20; ++i)
      if (processes.all_reduce_max(i - processes.rank()) != i) ++wrong;
    second.join();
  });
  REQUIRE(wrong == 0);
  REQUIRE(thrown == std::vector<std::string>(3));
}

TEST_CASE("the error of one process fails all others at their next collective", "[processes]") {
  for (const int culprit : {0, 2}) {
    std::vector<std::optional<SharedFailure>> failures(4);
    const auto thrown = run_processes(4, [&](ProcessGroup& processes) {
      processes.barrier("the start");
      const auto rank = static_cast<size_t>(processes.rank());
      if (processes.rank() == culprit) {
        failures[rank] = processes.fail_together("no such file", 2, 20s);
        return;
      }
      try {
        processes.all_gather("well", "the checkpoint");
      } catch (const Error& error) {
        // A process that failed because of another does not add an error of its own.
        failures[rank] = processes.fail_together(error.what(), 1, 20s);
        throw;
      }
    });
    const std::string name = culprit == 0 ? "process 0 (host a)" : "process 2 (host b)";
    std::vector<std::string> errors(4);
    errors[static_cast<size_t>(culprit)] = "no such file";
    for (int rank = 0; rank < 4; ++rank) {
      const auto at = static_cast<size_t>(rank);
      REQUIRE(thrown[at] == (rank == culprit ? "" : name + " failed: no such file"));
      REQUIRE(failures[at]);
      REQUIRE(failures[at]->errors == errors);
      REQUIRE(failures[at]->exit_code == 2);
    }
  }
}

TEST_CASE("run_on_all returns every process's result, or fails with every error", "[processes]") {
  std::vector<std::string> results;
  const auto thrown = run_processes(4, [&](ProcessGroup& processes) {
    const int rank = processes.rank();
    const auto texts = processes.run_on_all("saving", [&] { return std::to_string(rank * 10); });
    if (rank == 3) results = texts;
    processes.run_on_all("loading", [&]() -> std::string {
      if (rank % 2 == 1) fail("no space on disk {}", rank);
      return "";
    });
  });
  REQUIRE(results == std::vector<std::string>{"0", "10", "20", "30"});
  for (const std::string& error : thrown)
    REQUIRE(error ==
            "process 1 (host a): no space on disk 1; process 3 (host b): no space on disk 3");
}

TEST_CASE("a process that does not join a collective is named", "[processes]") {
  const auto thrown = run_processes(
      3,
      [&](ProcessGroup& processes) {
        processes.barrier("the start");
        if (processes.rank() != 2) processes.all_reduce_max(1, "saving step 20");
        if (processes.rank() == 0)
          REQUIRE_FALSE(processes.fail_together("this too", 1, 100ms).has_value());
      },
      200ms);
  const std::string report =
      "process 2 (host b) did not reach 'saving step 20' within 0.2 s: suspended, dead or much "
      "slower";
  REQUIRE(thrown[0] == report);
  REQUIRE(thrown[1] == "process 0 (host a) failed: " + report);
  REQUIRE(thrown[2].empty());
}

// Passes messages on, but receives none before `resumes`, like a process that is suspended.
class SuspendedTransport final : public Transport {
 public:
  SuspendedTransport(std::shared_ptr<Transport> inner, std::shared_future<void> resumes)
      : inner_(std::move(inner)), resumes_(std::move(resumes)) {}

  std::string_view kind() const override { return inner_->kind(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& host(int rank) const override { return inner_->host(rank); }
  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    return inner_->send(to, tag, bytes);
  }
  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    resumes_.wait();
    return inner_->receive(from, tag, bytes);
  }
  [[noreturn]] void abort(int exit_code) override { inner_->abort(exit_code); }

 private:
  const std::shared_ptr<Transport> inner_;
  const std::shared_future<void> resumes_;
};

TEST_CASE("process 0 reports a process that does not receive the result", "[processes]") {
  const auto transports = make_loopback(2);
  std::promise<void> resumes;
  ProcessGroup first(transports[0], 20s);
  ProcessGroup second(
      std::make_shared<SuspendedTransport>(transports[1], resumes.get_future().share()), 20s);
  std::thread leader([&] { first.barrier("step 7"); });
  std::thread peer([&] { second.barrier("step 7"); });
  std::string report;
  const bool reported = comes_true([&] {
    report = first.stall_probes().stalled(200ms);
    return !report.empty();
  });
  resumes.set_value();
  leader.join();
  peer.join();
  REQUIRE(reported);
  REQUIRE(report == "process 0 (host host) waits at 'step 7' for process 1 (host host)");
  REQUIRE(first.stall_probes().stalled(0ms).empty());
}

TEST_CASE("a process without an answer from process 0 reports that", "[processes]") {
  const auto transports = make_loopback(2);
  ProcessGroup processes(transports[1], 50ms);
  REQUIRE_THROWS_WITH(
      processes.barrier("the start"),
      Catch::StartsWith("process 0 (host host) did not answer at 'the start' within 0.05 s"));
  REQUIRE_FALSE(processes.fail_together("this too", 1, 50ms).has_value());
  REQUIRE_THROWS_WITH(processes.barrier("more"), Catch::Contains("no communication is possible"));
}

TEST_CASE("processes that call different collectives are reported as diverged", "[processes]") {
  const auto thrown = run_processes(2, [&](ProcessGroup& processes) {
    processes.barrier(processes.is_first() ? "saving step 20" : "the end");
  });
  REQUIRE(thrown[0] ==
          "process 1 (host a) is at 'the end' and process 0 (host a) at 'saving step 20': the "
          "processes have diverged");
  REQUIRE(thrown[1] == "process 0 (host a) failed: " + thrown[0]);
}

TEST_CASE("a transport is made by its registered name", "[processes]") {
  REQUIRE_THROWS_WITH(make_transport("pigeon"),
                      Catch::StartsWith("no transport 'pigeon' is loaded"));
  register_transport("pigeon", [] { return make_loopback(1).front(); });
  REQUIRE(make_transport("pigeon")->kind() == "loopback");
  REQUIRE_THROWS_WITH(make_transport("owl"), "no transport 'owl' is loaded; loaded: pigeon");
}

TEST_CASE("the report is that of the first registered stall probe with something to report") {
  StallProbes probes;
  REQUIRE(probes.stalled(1s).empty());
  const auto first = probes.add([](auto least) { return least > 1s ? "" : "first"; });
  {
    const auto second = probes.add([](auto) { return "second"; });
    REQUIRE(probes.stalled(1s) == "first");
    REQUIRE(probes.stalled(2s) == "second");
  }
  REQUIRE(probes.stalled(2s).empty());
}

}  // namespace
}  // namespace tessera
