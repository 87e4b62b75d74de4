// SPDX-License-Identifier: Apache-2.0
// seqax's model with explicit layouts, from the command line.
#include <algorithm>
#include <map>

#include "experiments/seqax/synthetic_tasks.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/registry.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// A few steps of few examples; `where` chooses the devices.
std::vector<std::string> losses(const TemporaryDirectory& directory, const std::string& name,
                                const std::vector<std::string>& where) {
  std::vector<std::string> arguments = {"--exp=seqax.LocalSynthetic",
                                        "--job_log_dir=" + (directory / name).string()};
  arguments.insert(arguments.end(), where.begin(), where.end());
  successful(
      run_program(directory.path(), "runexp", arguments,
                  {"num_train_steps=6", "global_batch_size=8", "learning_rate=0.01",
                   "warmup_steps=2", "compute_dtype=f32", "task.train.eval_interval_steps=0",
                   "task.train.save_interval_steps=6", "eval.datasets.validation.num_batches=2"}));
  return values_of(directory / name, "loss");
}

TEST_CASE("seqax.LocalSynthetic is the 2.43M model on a mesh of four by two") {
  const TemporaryDirectory directory;
  const Ended described = successful(
      run_program(directory.path(), "runexp", {"--exp=seqax.LocalSynthetic", "--describe"}));
  REQUIRE_THAT(described.output, Catch::Contains("mesh.ici_mesh_shape = [1, 4, 2]"));
  const Ended plan = successful(
      run_program(directory.path(), "runexp", {"--exp=seqax.LocalSynthetic", "--mode=plan"}));
  REQUIRE_THAT(plan.output, Catch::Contains("2426112") && !Catch::Contains("warning"));
}

TEST_CASE("seqax's model learns on one device") {
  const TemporaryDirectory directory;
  const auto got = losses(directory, "one", {"--set", "ici_mesh_shape=[1,1,1]"});
  REQUIRE(got.size() == 6);
  REQUIRE(std::stod(got.front()) > 6.5);  // ln 1280 = 7.2, and half of the tokens are below 11.
  REQUIRE(std::stod(got.back()) < 0.75 * std::stod(got.front()));
}

TEST_CASE("seqax's model takes the same steps on its mesh of four by two") {
  const TemporaryDirectory directory;
  const auto one = losses(directory, "one", {"--set", "ici_mesh_shape=[1,1,1]"});
  const auto many = losses(directory, "many", {"--devices=8"});
  REQUIRE(many.size() == one.size());
  // Sums in another order: f32 rounding, amplified by a few steps at a high learning rate.
  for (size_t i = 0; i < one.size(); ++i)
    REQUIRE(std::stod(many[i]) == Approx(std::stod(one[i])).epsilon(1e-3));
}

// seqax's synthetic tasks in its experiment: one long row is split into its sequences, and each
// follows the rule of its task.

using Tokens = std::vector<int32_t>;

// By task, without the task token. The last sequence of the row may be truncated.
std::map<int32_t, std::vector<Tokens>> sequences(const std::string& split) {
  const ExperimentConfig config =
      find_experiment("seqax.LocalSynthetic", plugin_path({})).make()->build();
  Template<BaseInput> input_tpl =
      split == "train" ? config.input : config.eval_inputs.at("validation");
  auto& p = input_tpl.as<SeqaxTasks::HParams>();
  p.global_batch_size = 1;
  p.seq_len = 100000;
  p.shuffle = false;
  const std::unique_ptr<BaseInput> input = input_tpl.instantiate();
  input->attach({});
  const Batch batch = input->get_next().value();
  std::vector<Tokens> all;
  for (int64_t i = 0; i < 100000; ++i) {
    if (batch.at("segment_pos").data<int32_t>()[i] == 0) all.emplace_back();
    all.back().push_back(batch.at("labels").data<int32_t>()[i]);
  }
  std::map<int32_t, std::vector<Tokens>> by_task;
  for (const Tokens& each : all)
    by_task[each.front()].push_back(Tokens(each.begin() + 1, each.end()));
  return by_task;
}

// The smallest distance at which all tokens repeat; their number if they do not repeat.
int64_t period(const Tokens& tokens) {
  for (size_t distance = 1; distance < tokens.size(); ++distance)
    if (std::equal(tokens.begin() + static_cast<ptrdiff_t>(distance), tokens.end(), tokens.begin()))
      return static_cast<int64_t>(distance);
  return static_cast<int64_t>(tokens.size());
}

bool in_range(const Tokens& tokens, int32_t last) {
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](int32_t token) { return token >= 1 && token <= last; });
}

// Whether the tokens from `middle` on are the reverse of those before it.
bool mirrored(const Tokens& tokens, size_t middle) {
  for (size_t i = middle; i < tokens.size(); ++i)
    if (tokens[i] != tokens[2 * middle - 1 - i]) return false;
  return true;
}

TEST_CASE("seqax's five tasks all occur, and each follows its rule") {
  auto by_task = sequences("train");
  REQUIRE(by_task.size() == 5);
  for (const auto& [task, of_task] : by_task) {
    INFO("task " << task);
    REQUIRE(of_task.size() >= 15);  // Out of about 200, drawn uniformly.
    for (const Tokens& tokens : of_task) REQUIRE(tokens.size() < 1024);
  }
  // A full sequence has 1023 tokens after the task token, so its first half has 512.
  for (const Tokens& tokens : by_task[1]) {
    REQUIRE(in_range(tokens, 10));
    if (tokens.size() > 600) REQUIRE(period(tokens) == 512);
  }
  for (const Tokens& tokens : by_task[2]) {
    REQUIRE(in_range(tokens, 10));
    if (tokens.size() > 600) REQUIRE(mirrored(tokens, 512));
  }
  for (const Tokens& tokens : by_task[3]) {
    if (tokens.size() < 2) continue;
    const int64_t stated = tokens.front();
    REQUIRE(stated >= 1023 / 4);
    REQUIRE(stated <= 1023);
    const Tokens letters(tokens.begin() + 1, tokens.end());
    REQUIRE(in_range(letters, 10));
    if (static_cast<int64_t>(letters.size()) > stated + 20) REQUIRE(period(letters) == stated);
  }
  for (const Tokens& tokens : by_task[4]) {
    REQUIRE(in_range(tokens, 10));
    REQUIRE(period(tokens) >= std::min<int64_t>(1023 / 4, static_cast<int64_t>(tokens.size())) -
                                  20);  // The end of a short one may match by chance.
  }
  int64_t distinct = 0;
  for (const Tokens& tokens : by_task[5]) {
    REQUIRE(in_range(tokens, 100));
    Tokens sorted = tokens;
    std::sort(sorted.begin(), sorted.end());
    const auto count = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    REQUIRE(count <= 3 * 45);  // Three normals of deviation at most 4, truncated at six deviations.
    distinct = std::max<int64_t>(distinct, count);
  }
  REQUIRE(distinct > 15);
}

TEST_CASE("seqax's tasks are deterministic, and the validation split differs") {
  REQUIRE(sequences("train") == sequences("train"));
  REQUIRE(sequences("train") != sequences("validation"));
}

}  // namespace

}  // namespace tessera
