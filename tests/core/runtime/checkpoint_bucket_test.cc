// SPDX-License-Identifier: Apache-2.0
// Checkpoints in an object store: they appear complete, are read from there, and a failure or a
// kill while one is saved leaves those before it.
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/storage/storage.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "tests/core/runtime/checkpoint_cases.h"
#include "tests/core/runtime/sharded_case.h"
#include "tests/support/catch.h"
#include "tests/support/s3_server.h"

namespace tessera {
namespace {

using Catch::Contains;
using Steps = std::vector<int64_t>;

// A run whose checkpoints are in s3://bucket/run/checkpoints.
class RunInBucket {
 public:
  RunInBucket() { write_bytes(directory_ / kRunUrlName, "s3://bucket/run"); }

  const S3Server& server() const { return server_; }
  CheckpointStore store() const { return CheckpointStore(checkpoints()); }
  std::filesystem::path checkpoints() const { return directory_ / "checkpoints"; }
  void add(int64_t step, int64_t rows = 300) const {
    const CheckpointCase saved(step, rows);
    ProcessGroup alone;
    store().add(saved.info, saved.arrays, alone);
  }
  std::vector<std::string> objects() const { return server_.objects("bucket/run/"); }
  bool has_local_files() const {
    return std::filesystem::exists(checkpoints()) && !std::filesystem::is_empty(checkpoints());
  }

 private:
  S3Server server_;
  TemporaryDirectory directory_;
};

std::string step_name(int64_t step, std::string_view name) {
  return fmt::format("bucket/run/checkpoints/step_{:010}/{}", step, name);
}

TEST_CASE("checkpoints in a bucket are saved, listed, replaced and removed") {
  const RunInBucket run;
  REQUIRE(run.store().steps().empty());
  run.add(20);
  run.add(5, 10);
  run.add(5, 20);
  REQUIRE(run.store().directory() == "s3://bucket/run/checkpoints");
  REQUIRE(run.store().steps() == Steps{5, 20});
  REQUIRE(holds(run.store().open(20), CheckpointCase(20)));
  REQUIRE(holds(run.store().open(5), CheckpointCase(5, 20)));
  REQUIRE(holds(CheckpointStore("s3://bucket/run/checkpoints").open(20), CheckpointCase(20)));
  REQUIRE(run.store().remove(20).empty());
  REQUIRE(run.objects() == std::vector{step_name(5, "host_00000.h5"),
                                       step_name(5, "host_00000.table"), step_name(5, "index.h5"),
                                       step_name(5, "index.table")});
  REQUIRE_FALSE(run.has_local_files());
  REQUIRE_THAT(error_of([&] { run.store().open(6); }), Contains("no checkpoint of step 6"));
}

TEST_CASE("processes save their shards to a bucket together") {
  const RunInBucket run;
  const Mesh mesh = Mesh::standard({1, 3, 2});
  save_sharded(run.checkpoints(), mesh, 3, 7);
  REQUIRE(run.objects().size() == 8);
  REQUIRE(loads_on(run.store().open(7), mesh));
  REQUIRE(loads_on(run.store().open(7), Mesh::standard({1, 1, 2})));
}

TEST_CASE("the policy removes old checkpoints from a bucket") {
  const RunInBucket run;
  CheckpointSaver saver(run.store(), {.newest = 2});
  for (const int64_t step : {1, 2, 3}) {
    const CheckpointCase saved(step);
    saver.save(saved.info, saved.arrays);
    saver.wait();
  }
  REQUIRE(run.store().steps() == Steps{2, 3});
  REQUIRE(run.objects().size() == 8);
}

TEST_CASE("a save that fails leaves the bucket's earlier checkpoints and nothing else") {
  const RunInBucket run;
  run.add(5);
  const std::vector<std::string> before = run.objects();
  for (const auto& [name, fault] :
       {std::pair("host_00000.h5", "full"), std::pair("index.h5", "quota"),
        std::pair("index.table", "denied")}) {
    CAPTURE(name, fault);
    run.server().plant(
        fmt::format(R"([{{"method": "PUT", "match": "{}", "do": "{}"}}])", name, fault));
    REQUIRE_THAT(
        error_of([&] { run.add(6); }),
        Contains("cannot save the checkpoint of step 6: ") && Contains("s3://bucket/run/"));
    REQUIRE(run.objects() == before);
    REQUIRE(run.server().unfinished_uploads() == 0);
  }
  REQUIRE_FALSE(run.has_local_files());
  run.server().plant("[]");
  REQUIRE(holds(run.store().open(5), CheckpointCase(5)));
}

TEST_CASE("a save goes on after faults that pass") {
  const RunInBucket run;
  for (const char* fault : {"500", "reset", "lost_reply"}) {
    CAPTURE(fault);
    run.server().plant(fmt::format(R"([{{"method": "PUT", "times": 1, "do": "{}"}}])", fault));
    run.add(5);
    REQUIRE(holds(run.store().open(5), CheckpointCase(5)));
  }
}

TEST_CASE("what killed saves left in a bucket is not listed, and the next writer removes it") {
  const RunInBucket run;
  run.add(5);
  run.add(6);
  run.server().remove(step_name(6, "index.table"));
  REQUIRE(run.store().steps() == Steps{5});
  const CheckpointSaver next(run.store(), {});
  REQUIRE(run.objects().size() == 4);
}

// A list that is older than the last objects, or the last object, of a step.
TEST_CASE("a list that is out of date neither damages nor removes a checkpoint") {
  const RunInBucket run;
  run.add(5);
  const auto begin_stale_lists = [&] {
    run.server().plant(R"([{"match": "list-type", "do": "stale_list"}])");
  };
  const auto next_writer_removes_nothing = [&](size_t objects) {
    const CheckpointSaver next(run.store(), {});
    REQUIRE(run.objects().size() == objects);
  };
  begin_stale_lists();
  run.add(6);
  REQUIRE(run.store().steps() == Steps{5});
  next_writer_removes_nothing(8);
  run.add(6, 20);  // A run that has continued from step 5 replaces it.
  run.server().plant("[]");
  REQUIRE(holds(run.store().open(6), CheckpointCase(6, 20)));
  begin_stale_lists();
  run.server().put(step_name(6, "index.table"), run.server().get(step_name(6, "index.table")));
  REQUIRE(run.store().steps() == Steps{5, 6});
  next_writer_removes_nothing(8);
  REQUIRE(holds(run.store().open(6), CheckpointCase(6, 20)));
  run.store().set_aside(6);
  REQUIRE(run.store().steps() == Steps{5});
  next_writer_removes_nothing(8);
}

TEST_CASE("damage in a bucket is noticed, and the checkpoint can be set aside") {
  const RunInBucket run;
  run.add(5);
  run.add(6);
  std::string bytes = run.server().get(step_name(6, "host_00000.h5"));
  bytes[bytes.size() - 5] ^= 1;
  run.server().put(step_name(6, "host_00000.h5"), bytes);
  REQUIRE_THROWS_AS(holds(run.store().open(6), CheckpointCase(6)), DamagedCheckpoint);
  REQUIRE(run.store().set_aside(6) == "s3://" + step_name(6, "damaged_index.table"));
  REQUIRE(run.store().steps() == Steps{5});
  const CheckpointSaver next(run.store(), {});
  REQUIRE(run.objects().size() == 8);  // It stays.
}

}  // namespace
}  // namespace tessera
