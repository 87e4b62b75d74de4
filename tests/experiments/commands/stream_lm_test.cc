// SPDX-License-Identifier: Apache-2.0
// Training directly from shards, from the command line: validation loss without preparation, a
// shard that becomes corrupt during a run, skipped documents.
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

std::string document(int number) {
  std::string text = fmt::format("number {} is followed by", number);
  for (int i = 1; i < 4 + number % 5; ++i) text += fmt::format(" {}", number + i);
  return text + ".";
}

void write_shards(const fs::path& folder, int shards, int each) {
  for (int shard = 0; shard < shards; ++shard) {
    std::string lines;
    for (int i = 0; i < each; ++i)
      lines += fmt::format("{{\"text\": \"{}\"}}\n", document(shard * each + i));
    write_bytes(folder / fmt::format("{:02}.jsonl", shard), lines);
  }
}

// A run that takes two seconds.
Ended run(const fs::path& directory, std::vector<std::string> settings = {}) {
  settings.insert(
      settings.begin(),
      {"num_train_steps=24", "seq_len=32", "global_batch_size=4", "model_dims=16", "num_layers=1",
       "num_heads=2", "hidden_dims=32", "warmup_steps=4", "validation_fraction=0.1",
       "task.train.save_interval_steps=5", "task.train.metrics_interval_steps=1",
       "task.train.prefetch_batches=1", "path=" + (directory / "*.jsonl").string()});
  return run_program(
      directory, "runexp",
      {"--exp=StreamLm", "--threads=1", "--job_log_dir=" + (directory / "run").string()}, settings);
}

TEST_CASE("StreamLm trains on shards and scores the validation split, without preparation") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 6, 100);
  successful(run(directory.path()));
  const auto held_out = values_of(directory / "run", "eval/validation/log_pplx");
  REQUIRE(std::stod(held_out.back()) > 1.0);
  REQUIRE(std::stod(held_out.back()) < 5.6);
  // About a tenth of the labels, none of which training reads (streaming_text_input_test.cc).
  const double weight = std::stod(values_of(directory / "run", "eval/validation/weight").back());
  REQUIRE(weight > 1000);
  REQUIRE(weight < 3000);
}

TEST_CASE(
    "a shard that becomes corrupt ends a run; once repaired, the run continues with the same "
    "numbers") {
  const TemporaryDirectory whole, broken;
  // Without evaluation, which would find it before the first step.
  const std::vector<std::string> in_order = {"input.shuffle=false", "eval_inputs={}"};
  for (const TemporaryDirectory* directory : {&whole, &broken})
    write_shards(directory->path(), 4, 200);
  REQUIRE(run(whole.path(), in_order).code == 0);

  const std::string text = read_bytes(broken / "02.jsonl");
  const size_t at = text.find("number 415");
  write_bytes(broken / "02.jsonl", text.substr(0, at) + "\n" + text.substr(at));
  const Ended failed = with_code(1, run(broken.path(), in_order));
  REQUIRE_THAT(failed.output, Contains("02.jsonl:16"));
  const size_t steps = losses_of(broken / "run").size();
  REQUIRE(steps > 5);
  REQUIRE(steps < 24);
  REQUIRE(fs::exists(broken / "run/checkpoints/step_0000000010"));

  write_bytes(broken / "02.jsonl", text);
  const Ended resumed = successful(run(broken.path(), in_order));
  REQUIRE_THAT(resumed.output, Contains("restored step"));
  REQUIRE(losses_of(broken / "run") == losses_of(whole / "run"));
}

TEST_CASE("skipped documents are counted on the console and in metrics.jsonl") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 4, 60);
  for (int shard = 0; shard < 4; ++shard) {
    const fs::path file = directory / fmt::format("{:02}.jsonl", shard);
    write_bytes(file, "{\"text\": 7}\n" + read_bytes(file));
  }
  const Ended strict = run(directory.path());
  REQUIRE(strict.code == 2);  // The first batch of evaluation is read before the first step.
  REQUIRE_THAT(strict.output, Contains(".jsonl:1"));

  fs::remove_all(directory / "run");
  const Ended ended = successful(run(directory.path(), {"broken_documents=skip"}));
  REQUIRE_THAT(ended.output,
               Contains("step 5: 4 corrupt documents have been skipped so far; the first:") &&
                   Contains(".jsonl:1"));
  const std::string lines = read_bytes(directory / "run/metrics.jsonl");
  REQUIRE_THAT(lines, Contains("{\"event\": \"broken_documents\", \"step\": 5, \"count\": 4}"));
}

}  // namespace
}  // namespace tessera
