// SPDX-License-Identifier: Apache-2.0
// Comparisons of two plans, and where --mode=plan writes.
#include <fmt/format.h>

#include "core/io/file.h"
#include "core/ops/einsum.h"
#include "tasks/planner/plan.h"
#include "tasks/run/modes/modes.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// A plan whose collective and launch are at `line` of a layer.
Plan plan_at(int line, int64_t bytes, double seconds) {
  const std::string source = fmt::format("layers/ffn.cc:{}", line);
  PlannedCollective gather;
  gather.op = "all_gather";
  gather.value = "lm.ffn.up";
  gather.mesh_axes = {"data"};
  gather.bytes = bytes;
  gather.count = 2;
  gather.path = "lm.ffn";
  gather.source = source;
  PricedLaunch launch{
      .name = "einsum", .path = "lm.ffn", .source = source, .op = &kEinsumOp, .adds = seconds};
  return {.parameters = 1000,
          .tokens_per_step = 64,
          .memory = {{"parameters", 4000}, {"activations", bytes}},
          .peak = 4000 + bytes,
          .arena = 4096 + bytes,
          .saved = {{"ffn1", bytes}},
          .collectives = {gather},
          .totals = {{.mesh_axes = {"data"}, .count = 2, .bytes = 2 * bytes}},
          .prediction = Prediction{.hardware = hardware_named("h200"),
                                   .launches = {launch},
                                   .step_seconds = seconds,
                                   .tokens_per_second = 64.0 / seconds,
                                   .mfu = 0.5}};
}

std::string comparison(const Plan& before, const Plan& now) {
  return plan_comparison(parse_json(plan_json(before), "before"),
                         parse_json(plan_json(now), "now"));
}

TEST_CASE("a comparison of plans has a row for each line of code whose bytes or time change") {
  const std::string text = comparison(plan_at(61, 1024, 0.002), plan_at(64, 3072, 0.001));
  for (const char* row :
       {"| parameters | 1000 | 1000 |  |\n",
        "| memory at the peak | 4.91 KiB | 6.91 KiB | +2.00 KiB (+40.8 %) |\n",
        "| sent within slices | 2.00 KiB | 6.00 KiB | +4.00 KiB (+200.0 %) |\n",
        "| predicted step | 2.000 ms | 1.000 ms | -1.000 ms (-50.0 %) |\n",
        "| activations | 1.00 KiB | 3.00 KiB | +2.00 KiB (+200.0 %) |\n",
        "| ffn1 | 1.00 KiB | 3.00 KiB | +2.00 KiB (+200.0 %) |\n",
        // The line of the later plan: lines move, the layer stays.
        "| `layers/ffn.cc:64` `lm.ffn`, forward: all_gather over data in f32 | 2.00 KiB | 6.00 KiB "
        "| +4.00 KiB (+200.0 %) |\n",
        "| `layers/ffn.cc:64` `lm.ffn`, forward: einsum | 2.000 ms | 1.000 ms | -1.000 ms (-50.0 "
        "%) |\n"})
    REQUIRE_THAT(text, Catch::Contains(row));
  REQUIRE_THAT(text, !Catch::Contains("ffn.cc:61") && !Catch::Contains("| parameters | 3.91"));
}

TEST_CASE("equal plans have no changes, and what only one plan has changes from or to zero") {
  const Plan plan = plan_at(61, 1024, 0.002);
  const std::string same = comparison(plan, plan);
  REQUIRE_THAT(same, Catch::Contains("| memory at the peak | 4.91 KiB | 4.91 KiB |  |\n") &&
                         !Catch::Contains("saved for") && !Catch::Contains("ffn"));
  Plan without = plan;
  without.collectives.clear();
  REQUIRE_THAT(comparison(without, plan), Catch::Contains("| 0 B | 2.00 KiB | +2.00 KiB |\n"));
  REQUIRE_THAT(comparison(plan, without),
               Catch::Contains("| 2.00 KiB | 0 B | -2.00 KiB (-100.0 %) |\n"));
}

TEST_CASE("lines that only one plan has are paired in their order, the last ones are left over") {
  Plan before = plan_at(61, 1024, 0.002), now = before;
  const auto add = [](Plan& plan, int line, int64_t bytes) {
    plan.collectives.push_back(plan.collectives.front());
    plan.collectives.back().source = fmt::format("layers/ffn.cc:{}", line);
    plan.collectives.back().bytes = bytes;
  };
  for (const int line : {71, 81, 91}) add(before, line, 1024 * line);
  for (const int line : {74, 84}) add(now, line, 2048 * (line - 3));
  const std::string text = comparison(before, now);
  const auto row = [](int line, const char* numbers) {
    return Catch::Contains(
        fmt::format("| `layers/ffn.cc:{}` `lm.ffn`, forward: all_gather over "
                    "data in f32 | {} |\n",
                    line, numbers));
  };
  REQUIRE_THAT(text, row(74, "142 KiB | 284 KiB | +142 KiB (+100.0 %)") &&
                         row(84, "162 KiB | 324 KiB | +162 KiB (+100.0 %)") &&
                         row(91, "182 KiB | 0 B | -182 KiB (-100.0 %)"));
  REQUIRE_THAT(text, !Catch::Contains("ffn.cc:61") && !Catch::Contains("ffn.cc:71"));
}

TEST_CASE("rows beyond the twenty largest changes are added up") {
  Plan before = plan_at(61, 1024, 0.002), now = before;
  before.saved.clear();
  now.saved.clear();
  for (int i = 1; i <= 25; ++i) now.saved.push_back({fmt::format("value{}", i), 1024 * i});
  REQUIRE_THAT(comparison(before, now),
               Catch::Contains("| value6 |") && !Catch::Contains("| value5 |") &&
                   Catch::Contains("| 5 others | 0 B | 15.0 KiB | +15.0 KiB |\n"));
}

TEST_CASE("times are compared only if both plans have a prediction") {
  const Plan predicted = plan_at(61, 1024, 0.002);
  Plan plain = predicted;
  plain.prediction.reset();
  REQUIRE_THAT(comparison(plain, predicted),
               Catch::Contains("Times are not compared: only the new plan has a prediction "
                               "(--hardware=h200).") &&
                   !Catch::Contains("predicted step"));
  REQUIRE_THAT(comparison(predicted, plain), Catch::Contains("only the earlier plan"));
  REQUIRE_THAT(comparison(plain, plain), !Catch::Contains("Times"));
  Plan other = predicted;
  other.prediction->hardware = hardware_named("a100");
  REQUIRE_THAT(comparison(predicted, other),
               Catch::Contains("Times are for h200 before and for a100 now.") &&
                   Catch::Contains("predicted step"));
}

TEST_CASE("a plan is read from a file or a directory; what is no plan is an error") {
  const TemporaryDirectory folder;
  write_plan_files(folder.path(), plan_at(61, 1024, 0.002));
  for (const auto& path : {folder.path(), folder / "plan.json"})
    REQUIRE(read_plan(path).at("parameters").as_integer() == 1000);
  REQUIRE_THROWS_WITH(read_plan(folder / "absent.json"),
                      Catch::Contains("absent.json does not exist; give the plan.json that a run"));
  for (const char* text : {"{\"parameters\": 3}", "[]"}) {
    write_file_atomically(folder / "other.json", text);
    REQUIRE_THROWS_WITH(read_plan(folder / "other.json"), Catch::Contains("is no plan"));
  }
  write_file_atomically(folder / "other.json", "{");
  REQUIRE_THROWS_WITH(read_plan(folder / "other.json"), Catch::Contains("other.json"));
}

TEST_CASE("a plan is written to a directory that has no run") {
  const TemporaryDirectory folder;
  const Plan plan = plan_at(61, 1024, 0.002);
  PlanOptions options{.directory = folder / "planned", .output = folder / "copy.json"};
  REQUIRE(PlanOutput(options).write_files(plan).empty());
  REQUIRE(read_file(folder / "planned/plan.txt") == plan_text(plan));
  REQUIRE(read_file(folder / "planned/plan.json") == read_file(folder / "copy.json"));
  REQUIRE(PlanOutput(options).text(plan) == plan_text(plan));
  options.compare_with = folder / "planned";
  REQUIRE(PlanOutput(options).text(plan_at(64, 3072, 0.001)) ==
          comparison(plan, plan_at(64, 3072, 0.001)));

  write_file_atomically(folder / "planned/metrics.jsonl", "{\"step\": 3, \"loss\": 1.5}\n");
  const std::string note = PlanOutput(options).write_files(plan_at(64, 3072, 0.001));
  REQUIRE_THAT(note, Catch::Contains("has a run, and keeps the plan.txt and plan.json"));
  REQUIRE(read_file(folder / "planned/plan.txt") == plan_text(plan));
}

}  // namespace
}  // namespace tessera
