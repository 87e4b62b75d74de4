// SPDX-License-Identifier: Apache-2.0
// Shards read by several processes: the same rows as with one process, checkpoints that any number
// of processes can resume from, and a common end.
#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

const std::string kTiny =
    "--exp=quickstart.StreamLm --job_log_dir=run --set path=shards --set num_layers=1 "
    "--set model_dims=16 --set num_heads=2 --set hidden_dims=32 --set seq_len=16 "
    "--set global_batch_size=4 --set warmup_steps=1 --set num_train_steps=12 "
    "--set validation_fraction=0.2 --set input.shuffle_documents=3 "
    "--set task.train.save_interval_steps=5 --set task.train.metrics_interval_steps=1 "
    "--set rules.weights='embed -> data' --set rules.activations='batch -> (replica, data)' "
    "--threads=1 --allow_config_change ";

void write_shards(const fs::path& folder) {
  for (int shard = 0; shard < 5; ++shard) {
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines += fmt::format("{{\"text\": \"document {} of {}{}\"}}\n", i, shard,
                           std::string(static_cast<size_t>(i * 7 % 45), 'x'));
    write_bytes(folder / fmt::format("shards/{}.jsonl", shard), lines);
  }
}

std::string arguments(int processes, const std::string& more) {
  return kTiny + fmt::format("--set ici_mesh_shape=[1,{},1] ", processes) + more;
}

Outcome run(const fs::path& folder, int processes, const std::string& more = "") {
  const std::string given = arguments(processes, more);
  if (processes == 1) return shell(folder, "'" TESSERA_BINARY_DIR "/bin/runexp' " + given);
  return shell(folder, mpirun_command(fmt::format("-n {}", processes), "runexp", given));
}

void require_near(const fs::path& one, const fs::path& other, const std::string& key) {
  const auto a = values_of(one, key), b = values_of(other, key);
  REQUIRE(!a.empty());
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(key << " number " << i << ": " << a[i] << " and " << b[i]);
    REQUIRE(std::fabs(std::stod(a[i]) / std::stod(b[i]) - 1) < 1e-4);
  }
}

TEST_CASE("two processes train on shards as one does, also from its checkpoints", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory one, two;
  write_shards(one.path());
  write_shards(two.path());
  REQUIRE(run(one.path(), 1).exit_code == 0);
  // Two processes up to step 5, one up to step 10, two up to the end.
  const auto remove_checkpoint = [&](int step) {
    fs::remove_all(two / fmt::format("run/checkpoints/step_{:010}", step));
  };
  for (const int processes : {2, 1, 2}) {
    successful(run(two.path(), processes));
    require_near(one / "run", two / "run", "loss");
    // One process has fewer rows than the other; the same documents are scored.
    require_near(one / "run", two / "run", "eval/validation/log_pplx");
    require_near(one / "run", two / "run", "eval/validation/weight");
    remove_checkpoint(12);
    if (processes == 2) remove_checkpoint(10);
  }
}

TEST_CASE("an error in a shard that only one process reads ends all processes and names the shard",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folder;
  write_shards(folder.path());
  const std::string lines = read_bytes(folder / "shards/3.jsonl");
  write_bytes(folder / "shards/3.jsonl", lines.substr(0, lines.size() / 2));
  const std::string in_order = "--set input.shuffle=false --set task.train.eval_interval_steps=0 ";
  const Outcome outcome = with_code(1, run(folder.path(), 2, in_order));
  REQUIRE_THAT(outcome.errors, Contains("3.jsonl:21"));
  REQUIRE(outcome.seconds < 30);
}

TEST_CASE("two processes train on files of their own, each once, and refuse a file that both have",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folder;
  size_t bytes = 0;
  for (const auto& [name, documents] : {std::pair("0/a", 21), {"0/b", 5}, {"1/a", 50}}) {
    std::string lines;
    for (int i = 0; i < documents; ++i) {
      const std::string text = fmt::format("document {} of {}", i, name);
      bytes += text.size();
      lines += fmt::format("{{\"text\": \"{}\"}}\n", text);
    }
    write_bytes(folder / fmt::format("host{}.jsonl", name), lines);
  }
  const std::string own =
      "--set 'path=host{host}' --set num_train_steps=2 --set max_eval_batches=-1 ";
  std::string by_host;
  for (const char* input : {"input", "eval_inputs.validation"})
    by_host += fmt::format("--set {0}.sharding=by_host --set {0}.split=all ", input);
  const std::string settings = own + by_host + "--set eval_inputs.validation.labels=shift_right ";
  successful(run(folder.path(), 2, settings));
  REQUIRE(values_of(folder / "run", "loss").size() == 2);
  REQUIRE(std::stod(values_of(folder / "run", "eval/validation/weight").back()) ==
          static_cast<double>(bytes));
  fs::copy(folder / "host0/a.jsonl", folder / "host1/copy.jsonl");
  fs::remove_all(folder / "run");
  // Keeps the exit code of each process.
  write_bytes(folder / "each.sh", "\"$@\"\necho $? >code_$OMPI_COMM_WORLD_RANK\n");
  const Outcome outcome =
      shell(folder.path(), mpirun_command("-n 2 sh each.sh", "runexp", arguments(2, settings)));
  INFO(outcome.errors);
  for (const char* code : {"code_0", "code_1"}) REQUIRE(read_bytes(folder / code) == "2\n");
  REQUIRE_THAT(outcome.errors, Contains("is 'host 1, copy.jsonl' in process 1") &&
                                   Contains("'host 0, a.jsonl' in a process before it"));
  REQUIRE_FALSE(fs::exists(folder / "run/metrics.jsonl"));
}

}  // namespace
}  // namespace tessera
