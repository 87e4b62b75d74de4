// SPDX-License-Identifier: Apache-2.0
// The tracker `mlflow` against a small server with planted faults, and against MLflow's own; and
// `wandb` with the SDK.
#include "tasks/run/trackers/mlflow_tracker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/run/trackers/trackers.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// Answers as MLflow does. Before that, each planted fault spoils one reply: a status, kClose
// closes the connection, kSilent keeps it open without a reply for a while.
class FakeMlflow {
 public:
  static constexpr int kClose = 0, kSilent = 1;
  explicit FakeMlflow(std::deque<int> faults) : faults_(std::move(faults)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(socket_, 16) != 0)
      fail("cannot listen");
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeMlflow() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  FakeMlflow& operator=(FakeMlflow&&) = delete;
  std::string uri() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::string seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void serve() {
    for (int client = 0; (client = ::accept(socket_, nullptr, nullptr)) >= 0;) {
      answer(client);
      ::close(client);
    }
  }
  void answer(int client) {
    std::string text;
    size_t head = 0, length = 0;
    for (char bytes[4096];;) {
      head = text.find("\r\n\r\n");
      const size_t at = text.find("Content-Length: ");
      length = at < head ? std::stoul(text.substr(at + 16)) : 0;
      if (head != std::string::npos && text.size() >= head + 4 + length) break;
      const ssize_t got = ::recv(client, bytes, sizeof(bytes), 0);
      if (got <= 0) return;
      text.append(bytes, static_cast<size_t>(got));
    }
    const std::lock_guard lock(mutex_);
    int status = 200;
    if (!faults_.empty()) {
      status = faults_.front();
      faults_.pop_front();
    }
    if (status == kSilent) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    if (status <= kSilent) return;
    if (status == 200)
      seen_ += text.substr(0, text.find(" HTTP")) + " " + text.substr(head + 4) + "\n";
    const std::string_view reply =
        status != 200                     ? "{\"message\": \"planted\"}"
        : text.find("get-by-name") < head ? R"({"experiment": {"experiment_id": "7"}})"
        : text.find("runs/create") < head ? R"({"run": {"info": {"run_id": "r1"}}})"
        : text.find("runs/update") < head
            ? R"({"run_info": {"artifact_uri": "mlflow-artifacts:/7/r1/artifacts"}})"
            : "{}";
    const std::string whole =
        fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                    reply.size(), reply);
    ::send(client, whole.data(), whole.size(), MSG_NOSIGNAL);
  }

  std::deque<int> faults_;
  int socket_ = -1;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::string seen_;
  std::thread thread_;
};

TrackedRun run_in(const TemporaryDirectory& directory) {
  std::filesystem::create_directories(directory / "trackers");
  return {.tracker = "m",
          .id = "abc",
          .name = "x.Y/run",
          .directory = directory.path(),
          .tags = {"owner=me", "plain"},
          .config = {{"task.model.layers[0].width", "64"}}};
}

struct Tracked {
  int64_t dropped = 0;
  std::string problem;
};
Tracked track(const TemporaryDirectory& directory, const std::string& uri, int seconds = 20) {
  TrackerQueue queue(
      std::make_unique<MlflowTracker>(MlflowTracker::HParams{.uri = uri, .timeout_seconds = 1.0}),
      run_in(directory));
  queue.add({.step = 1,
             .milliseconds = 1700000000123,
             .metrics = {{"lm.x_layers[3].loss", 0.5},
                         {"grad_norm", std::numeric_limits<double>::quiet_NaN()}}});
  write_file_atomically(directory / "graph.svg", "<svg/>");
  queue.add({.kind = TrackerRecord::Kind::kFile, .step = 1, .name = "graph.svg"});
  queue.add({.kind = TrackerRecord::Kind::kSamples, .step = 1, .texts = {{"samples/a b", "text"}}});
  queue.begin_end({.step = 1, .name = "done"});
  Tracked result;
  result.dropped = queue.finish(std::chrono::steady_clock::now() + std::chrono::seconds(seconds));
  result.problem = queue.take_problem();
  return result;
}

TEST_CASE("mlflow gets the run, its parameters, metrics, files and status") {
  const TemporaryDirectory directory;
  FakeMlflow server({});
  REQUIRE(track(directory, server.uri()).dropped == 0);
  REQUIRE_THAT(
      server.seen(),
      Contains(R"("run_name": "x.Y/run")") && Contains(R"({"key": "owner", "value": "me"})") &&
          Contains(R"({"key": "task.model.layers.0.width", "value": "64"})") &&
          Contains(
              R"({"key": "lm.x_layers.3.loss", "value": 0.5, "timestamp": 1700000000123, "step": 1})") &&
          Contains(R"({"key": "grad_norm", "value": "NaN")") &&
          Contains("PUT /api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/graph.svg <svg/>") &&
          Contains("/artifacts/samples/a%20b/step_1.md text") &&
          Contains(R"("status": "FINISHED")"));
  // A resumed run continues it.
  FakeMlflow again({});
  REQUIRE(track(directory, again.uri()).dropped == 0);
  REQUIRE_THAT(again.seen(), !Contains("runs/create") && Contains("runs/get?run_id=r1"));
}

TEST_CASE("mlflow repeats what a faulty server did not take") {
  const TemporaryDirectory directory;
  FakeMlflow server({500, 200, FakeMlflow::kClose, 200, 503, 200, 200, 429, FakeMlflow::kSilent});
  REQUIRE(track(directory, server.uri()).dropped == 0);
  REQUIRE_THAT(server.seen(), Contains("graph.svg <svg/>") && Contains("FINISHED"));
}

TEST_CASE("mlflow ends at a refused password, and without a server its records are dropped") {
  const TemporaryDirectory directory;
  ::setenv("MLFLOW_TRACKING_TOKEN", "very-secret", 1);
  Tracked refused;
  {
    FakeMlflow server({401, 401});
    refused = track(directory, server.uri());
  }
  ::unsetenv("MLFLOW_TRACKING_TOKEN");
  REQUIRE(refused.dropped == 3);
  REQUIRE_THAT(refused.problem, Contains("status 401") && Contains("set MLFLOW_TRACKING_TOKEN") &&
                                    !Contains("very-secret"));
  const Tracked gone = track(directory, "http://127.0.0.1:1", 1);
  REQUIRE(gone.dropped == 3);
  REQUIRE_THAT(gone.problem, Contains("it is tried again, and the run continues"));
}

TEST_CASE("the address of mlflow has no password") {
  const auto made = [](const char* uri) {
    return error_of([&] { MlflowTracker(MlflowTracker::HParams{.uri = uri}); });
  };
  const std::string refused = made("https://me:very-secret@host");
  REQUIRE_THAT(refused, Contains("MLFLOW_TRACKING_PASSWORD") && !Contains("very-secret"));
  REQUIRE_THAT(made("host:5000"), Contains("uri is 'host:5000', expected http://HOST:PORT"));
}

// Need TESSERA_PYTHON to name a Python that has mlflow and wandb.
TEST_CASE("trackers work with the servers and the SDK of MLflow and Weights & Biases", "[full]") {
  for (const std::string tool : {"mlflow", "wandb"}) {
    const std::string python = python_with(tool);
    if (python.empty()) {
      WARN("skipped: no Python with " + tool + " (TESSERA_PYTHON)");
      continue;
    }
    REQUIRE(std::system(fmt::format("{} {}/tests/tasks/run/trackers/real_{}.py {}/bin/runexp",
                                    python, TESSERA_SOURCE_DIR, tool, TESSERA_BINARY_DIR)
                            .c_str()) == 0);
  }
}

}  // namespace
}  // namespace tessera
