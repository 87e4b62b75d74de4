// SPDX-License-Identifier: Apache-2.0
// A run at a URL: its lease, and the copies of its files.
#include "tasks/run/directory/remote_run.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <thread>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tests/support/catch.h"
#include "tests/support/s3_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Access = RemoteRun::Access;
using Catch::Contains;

constexpr const char* kUrl = "s3://bucket/a run/é";
constexpr const char* kObjects = "bucket/a run/é/";

std::string object(std::string_view name) { return fmt::format("{}{}", kObjects, name); }

std::string lease_of(std::string_view token, int64_t age) {
  return fmt::format(R"({{"owner": "process 7 on other", "token": "{}", "time": {}}})", token,
                     std::time(nullptr) - age);
}

TEST_CASE("a run at a URL has one writer") {
  const S3Server server;
  {
    RunLease lease(kUrl, "");
    REQUIRE(lease.renew());
    REQUIRE_THAT(error_of([] { RunLease(kUrl, ""); }),
                 Contains("s3://bucket/a run/é is in use by process ") &&
                     Contains("its lease ends in ") && Contains("when you remove s3://"));
    lease.release();
  }
  REQUIRE(server.objects().empty());
  server.put(object("lock"), lease_of("theirs", 290));
  REQUIRE_THAT(error_of([] { RunLease(kUrl, ""); }), Contains("in use by process 7 on other"));
  REQUIRE(RunLease(kUrl, "theirs").was_known());  // Its own, of a killed run.
  // One that looks old is renewed by a host whose clock is behind.
  const ScopedVariable renewal("TESSERA_UPLOAD_SECONDS", "1");
  server.put(object("lock"), lease_of("theirs", 310));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    server.put(object("lock"), lease_of("theirs", 309));
  });
  REQUIRE_THAT(error_of([] { RunLease(kUrl, ""); }), Contains("in use by process 7 on other"));
  other.join();
  RunLease lease(kUrl, "");
  REQUIRE_FALSE(lease.was_known());
  server.put(object("lock"), lease_of("another", 0));
  REQUIRE_FALSE(lease.renew());
  lease.release();
  REQUIRE(server.objects().size() == 1);  // The lease of the other run.
}

TEST_CASE("a store that ignores the conditions of writes is named") {
  const S3Server server;
  server.plant(R"([{"method": "PUT", "do": "ignore_conditions"}])");
  const TemporaryDirectory directory;
  std::fflush(stderr);
  const int console = ::dup(STDERR_FILENO);
  REQUIRE(std::freopen((directory / "said").c_str(), "w", stderr) != nullptr);
  RunLease lease(kUrl, "");
  std::fflush(stderr);
  ::dup2(console, STDERR_FILENO);
  ::close(console);
  REQUIRE_THAT(read_file(directory / "said"),
               Contains("note: s3://bucket/a run/é: its store ignores the conditions of writes"));
  lease.release();
  REQUIRE(server.objects().empty());
}

TEST_CASE("a configuration with a password is refused before it is written") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config();
  set_path(config, "task.train.init_from.directory", "s3://me:very-secret@host/x");
  const std::string refused = error_of([&] { run_tiny(config, directory / "run"); });
  REQUIRE_THAT(
      refused,
      Contains("task.train.init_from.directory: s3://host: the URL has a user or password") &&
          !Contains("very-secret"));
  REQUIRE_FALSE(fs::exists(directory / "run" / "hparams.toml"));
}

TEST_CASE("a lease is held although the reply to its request was lost") {
  const S3Server server;
  server.plant(R"([{"method": "PUT", "times": 1, "do": "lost_reply"}])");
  RunLease lease(kUrl, "");
  server.plant(R"([{"method": "PUT", "times": 1, "do": "lost_reply"}])");
  REQUIRE(lease.renew());
  REQUIRE(lease.renew());
}

TEST_CASE("files are copied to and from the store, and nothing local stays") {
  const S3Server server;
  server.put(object("checkpoints/step_0000000001/index.table"), "of a checkpoint");
  server.put(object("../outside"), "outside");
  ProcessGroup alone;
  {
    RemoteRun run(kUrl, Access::kWrite, alone);
    REQUIRE(run.directory().filename() == "é");
    write_bytes(run.directory() / "metrics.jsonl", "{}\n");
    write_bytes(run.directory() / "eval_out/a b.jsonl", "1");
    write_bytes(run.directory() / ".hidden", "x");
    write_bytes(run.directory() / "checkpoints/.shard", "x");
    run.finish();
    REQUIRE(server.objects(object("lock")).size() == 1);
  }
  const std::vector<std::string> objects{object("../outside"),
                                         object("checkpoints/step_0000000001/index.table"),
                                         object("eval_out/a b.jsonl"), object("metrics.jsonl")};
  REQUIRE(server.objects() == objects);
  REQUIRE(fs::is_empty(server.cache() / "runs"));
  {
    const RemoteRun reader(kUrl, Access::kRead, alone);
    REQUIRE(read_bytes(reader.directory() / "metrics.jsonl") == "{}\n");
    REQUIRE(read_bytes(reader.directory() / "eval_out/a b.jsonl") == "1");
    REQUIRE_FALSE(fs::exists(reader.directory() / "checkpoints"));
    REQUIRE(CheckpointStore(reader.directory() / "checkpoints").steps() == std::vector<int64_t>{1});
    write_bytes(reader.directory() / "eval_out/b.jsonl", "2");
  }
  REQUIRE(server.get(object("eval_out/b.jsonl")) == "2");
  REQUIRE(server.requests("PUT", "metrics.jsonl") == 1);  // A reader uploads what it has made.
  REQUIRE(fs::is_empty(server.cache() / "runs"));
}

TEST_CASE("files are uploaded while a run goes on, also after a failure, until its lease is lost") {
  const S3Server server;
  const ScopedVariable often("TESSERA_UPLOAD_SECONDS", "1");
  const auto comes = [&](const std::function<bool()>& what) {
    for (int i = 0; i < 200 && !what(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return what();
  };
  ProcessGroup alone;
  {
    const RemoteRun run(kUrl, Access::kWrite, alone);
    server.plant(R"([{"method": "PUT", "match": "metrics", "times": 1, "do": "denied"}])");
    write_bytes(run.directory() / "metrics.jsonl", "{}\n");
    write_bytes(run.directory() / "lock", "");
    REQUIRE(comes([&] { return !server.objects(object("metrics.jsonl")).empty(); }));
    server.put(object("lock"), lease_of("another", 0));
    REQUIRE(comes([&] { return !fs::exists(run.directory() / "lock"); }));
    write_bytes(run.directory() / "metrics.jsonl", "{}\n{}\n");
  }
  REQUIRE(server.get(object("metrics.jsonl")) == "{}\n");
  REQUIRE_THAT(server.get(object("lock")), Contains("another"));
}

TEST_CASE("a failure of the last upload is an error, and the next run of this host has the files") {
  const S3Server server;
  ProcessGroup alone;
  {
    RemoteRun run(kUrl, Access::kWrite, alone);
    server.plant(R"([{"method": "PUT", "match": "metrics", "do": "quota"}])");
    write_bytes(run.directory() / "metrics.jsonl", "{}\n");
    REQUIRE_THAT(error_of([&] { run.finish(); }),
                 Contains("the last files of s3://bucket/a run/é are only in ") &&
                     Contains(run.directory().string()));
  }
  server.plant("[]");
  server.put(object("metrics.jsonl"), "older");
  { RemoteRun(kUrl, Access::kWrite, alone); }
  REQUIRE(server.get(object("metrics.jsonl")) == "{}\n");
}

TEST_CASE("processes of a host share the files of a run, and must have one URL") {
  const S3Server server;
  server.put(object("hparams.toml"), "x = 1\n");
  const auto on_hosts = [&](const std::vector<std::string>& hosts,
                            const std::vector<std::string>& urls) {
    const auto transports = make_loopback(static_cast<int>(hosts.size()), hosts);
    std::vector<std::string> seen(hosts.size());
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < hosts.size(); ++rank)
        threads.emplace_back([&, rank] {
          ProcessGroup processes(transports[rank]);
          try {
            const RemoteRun run(urls[rank], Access::kWrite, processes);
            CHECK(read_bytes(run.directory() / "hparams.toml") == "x = 1\n", "it is missing");
            seen[rank] = run.directory().string();
            processes.barrier("the end");
          } catch (const Error& error) {
            seen[rank] = error.what();
          }
        });
    }
    return seen;
  };
  const auto seen = on_hosts({"left", "left", "right"}, {kUrl, kUrl, kUrl});
  REQUIRE(seen[0] == seen[1]);
  REQUIRE(seen[0] != seen[2]);
  REQUIRE_THAT(seen[0] + seen[2], !Contains("missing"));
  for (const std::string& error : on_hosts({"left", "right"}, {kUrl, "s3://bucket/other"}))
    REQUIRE_THAT(error, Contains("expected one URL"));
}

}  // namespace
}  // namespace tessera
