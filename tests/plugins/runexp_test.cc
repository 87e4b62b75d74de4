// SPDX-License-Identifier: Apache-2.0
// runexp from the command line: what it prints to which stream, and its exit codes.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>

#include "core/base/error.h"
#include "core/devices/cpu/processor.h"
#include "tests/plugins/fixtures.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// Runs runexp in a separate process, because plugin registration cannot be undone. `prefix`
// precedes the command: environment variables, or a program that starts it.
Outcome runexp(const TemporaryDirectory& folder, const std::string& arguments,
               const std::string& prefix = "") {
  constexpr std::chrono::minutes kLimit(10);
  return shell(folder.path(),
               fmt::format("env {} '{}/bin/runexp' {}", prefix, TESSERA_BINARY_DIR, arguments),
               kLimit);
}

void require_one_line_error(const Outcome& outcome, int exit_code, const std::string& text) {
  INFO(outcome.errors);
  REQUIRE(outcome.exit_code == exit_code);
  REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
  REQUIRE_THAT(outcome.errors, Catch::StartsWith("runexp: ") && Catch::Contains(text));
}

// A run of a second or less.
const std::string kTiny = tiny_arguments(4);

TEST_CASE("--list shows every experiment and every plugin that failed to load") {
  const TemporaryDirectory folder;
  const Outcome listed = successful(
      runexp(folder, fmt::format("--list --plugin_path='{}'", fixture("stale").string())));
  REQUIRE_THAT(listed.out,
               Catch::Contains("quickstart.SourceLm  ") && Catch::Contains("quickstart.CharLm  "));
  REQUIRE_THAT(listed.errors, Catch::StartsWith("runexp: not loaded: ") &&
                                  Catch::Contains("plugin of another build"));
}

TEST_CASE("remote paths are refused where none can be, and ~ is the home directory") {
  const TextFolder folder;
  const std::string exp = "--exp=quickstart.CharLm ";
  for (const std::string& flag :
       {exp + "--mode=plan --output", exp + "--config", exp + "--plugin_path",
        exp + "--mode=plan --compare_plan", exp + "--mode=replay --step=1 --record"}) {
    const Outcome refused = runexp(folder, flag + "=gs://bucket/x");
    require_one_line_error(refused, 2, "gs://bucket/x: gs:// is not a path of this machine");
  }
  for (const std::string& flag :
       {exp + "--job_log_dir", exp + "--mode=import --input", exp + "--mode=export --output",
        std::string("--report"), std::string("--compare"), exp + "--set input.path",
        exp + "--set input.tokenizer", exp + "--mode=score --requests"})
    require_one_line_error(runexp(folder, flag + "=ftp://host/x"), 2,
                           "ftp://host/x: no store has the scheme ftp://; expected s3");
  const Outcome remote = runexp(folder, kTiny + " --mode=plan --output=s3://bucket/plan.txt");
  require_one_line_error(remote, 2, "--output s3://bucket/plan.txt");
  require_one_line_error(runexp(folder, kTiny + " --mode=plan --output='~somebody/plan.txt'"), 2,
                         "--output ~somebody/plan.txt: only ~/ is expanded");
  for (const char* scheme : {"gs:", "s3:", "~somebody"})
    REQUIRE(!std::filesystem::exists(folder / scheme));

  std::string in_home = kTiny;
  in_home.replace(in_home.find("=run "), 5, "=~/run ");
  in_home.replace(in_home.find("=text.txt"), 9, "='~/text.txt'");
  successful(runexp(folder, in_home, fmt::format("HOME='{}'", folder.path().string())));
  REQUIRE(std::filesystem::exists(folder / "run/metrics.jsonl"));
  REQUIRE(!std::filesystem::exists(folder / "~"));
}

TEST_CASE("a name registered by two plugins is reported after loading") {
  const TemporaryDirectory folder;
  const std::string both = fmt::format("--plugin_path='{}' --plugin_path='{}'",
                                       fixture("good").string(), fixture("twin").string());
  const Outcome listed = successful(runexp(folder, "--list " + both));
  REQUIRE_THAT(listed.errors, Catch::Contains("experiment 'zoo.Cat' is registered twice: in ") &&
                                  Catch::Contains("good/zoo.so and in ") &&
                                  Catch::Contains("twin/twin.so; rename one of them"));
  require_one_line_error(runexp(folder, "--exp=FastCat --describe " + both), 2,
                         "experiment 'zoo.Cat' is registered twice");
}

TEST_CASE("--smoke says so if an experiment does not say how it becomes small") {
  const TemporaryDirectory folder;
  const std::string plugins = " --plugin_path='" + fixture("good").string() + "'";
  const Outcome described =
      successful(runexp(folder, "--exp=zoo.Cat --smoke --describe" + plugins));
  REQUIRE(described.errors ==
          "runexp: --smoke makes only the mesh and the number of steps of zoo.Cat small; to make "
          "its layers and data small, override shrink() (docs/experiments.md)\n");
  REQUIRE(runexp(folder, "--exp=zoo.Herd --smoke --describe" + plugins).errors.empty());
}

TEST_CASE("usage and configuration errors are one line with exit code 2") {
  const TextFolder folder;
  require_one_line_error(runexp(folder, "--exq=a"), 2, "unknown flag --exq; did you mean --exp?");
  require_one_line_error(runexp(folder, "--exp=SorceLm"), 2,
                         "no experiment 'SorceLm'; did you mean 'quickstart.SourceLm'?");
  require_one_line_error(runexp(folder, kTiny + " --set num_heads=3"), 2, "3");
  require_one_line_error(runexp(folder, kTiny + " --set num_head=3"), 2,
                         "did you mean 'num_heads'?");
  require_one_line_error(runexp(folder, kTiny + " --set input.path=missing.txt"), 2, "missing.txt");
  require_one_line_error(runexp(folder, kTiny + " --plugin_path=nowhere"), 2,
                         "--plugin_path=nowhere: no such folder or library");
  require_one_line_error(runexp(folder, kTiny + " --device=quantum"), 2,
                         "--device=quantum: unknown kind of device; expected cpu");
  require_one_line_error(runexp(folder, "--mode=selfcheck --device=cpy"), 2,
                         "--device=cpy: unknown kind of device; did you mean 'cpu'?");
  const std::string hollow =
      fmt::format(" --exp=hollow.Any --plugin_path='{}'", fixture("hollow").string());
  require_one_line_error(runexp(folder, hollow), 2, "nobody_defines_this");
}

TEST_CASE("an unknown or unsupported processor level is one line with exit code 2") {
  const TextFolder folder;
  const std::string misspelt = "TESSERA_CPU_LEVEL=avx22";
  for (const std::string& arguments : {kTiny, kTiny + " --mode=plan", kTiny + " --dry_run",
                                       kTiny + " --mode=eval", std::string("--mode=selfcheck")})
    require_one_line_error(runexp(folder, arguments, misspelt), 2,
                           "TESSERA_CPU_LEVEL=avx22: expected one of portable, avx2, avx512, "
                           "avx512_bf16, amx; did you mean 'avx2'?");
  REQUIRE_FALSE(std::filesystem::exists(folder / "run"));
  const CpuLevel highest = machine_levels().back();
  if (highest == CpuLevel::kAmx) return;  // This processor supports every level.
  for (const std::string& arguments : {kTiny, std::string("--mode=selfcheck")})
    require_one_line_error(
        runexp(folder, arguments, "TESSERA_CPU_LEVEL=amx"), 2,
        fmt::format("TESSERA_CPU_LEVEL=amx: this processor has no amx; its highest level is {}",
                    level_name(highest)));
}

TEST_CASE("a run prints its processor level and peak when it starts") {
  const TextFolder folder;
  const Outcome started =
      successful(runexp(folder, kTiny + " --dry_run", "TESSERA_CPU_LEVEL=portable"));
  const CpuLevel highest = machine_levels().back();
  REQUIRE_THAT(started.out,
               Catch::Contains("cpu: 1 thread, portable") &&
                   Catch::Contains(highest == CpuLevel::kPortable
                                       ? ""
                                       : fmt::format("(lowered from {} by TESSERA_CPU_LEVEL)",
                                                     level_name(highest))) &&
                   Catch::Contains("; peak ") && Catch::Contains(" GFLOP/s in f32, "));
  const Outcome own = runexp(folder, kTiny + " --dry_run");
  REQUIRE_THAT(own.out,
               Catch::Contains(fmt::format("cpu: 1 thread, {}", level_name(cpu_level()))) &&
                   !Catch::Contains("lowered"));
}

// The first processor in this process's affinity mask.
int first_processor() {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof(set), &set) == 0);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &set)) return processor;
  return 0;
}

TEST_CASE("one processor, or more threads than processors, gives the same losses") {
  const TextFolder folder;
  const std::string run = kTiny + " --restart";
  const auto losses = [&](const std::string& arguments, const std::string& prefix) {
    successful(runexp(folder, arguments, prefix));
    return losses_of(folder / "run");
  };
  const std::map<std::string, std::string> expected = losses(run, "");
  REQUIRE(expected.size() == 4);
  std::string many = run;
  many.replace(many.find("--threads=1"), 11, "--threads=37");
  REQUIRE(losses(many, "") == expected);
  REQUIRE(losses(many, fmt::format("taskset -c {}", first_processor())) == expected);
}

TEST_CASE("--mode=selfcheck passes with more threads than processors and needs no experiment") {
  const TemporaryDirectory folder;
  const Outcome checked = successful(runexp(folder, "--mode=selfcheck --threads=3",
                                            fmt::format("taskset -c {}", first_processor())));
  REQUIRE(checked.errors.empty());
  REQUIRE_THAT(checked.out, Catch::StartsWith("checking cpu: 3 threads, ") &&
                                Catch::Contains("the same bits on 1 and 3 threads") &&
                                Catch::Contains("\npassed ("));
  for (const std::string family : {"elementwise", "layout", "reduction", "einsum", "gather", "norm",
                                   "softmax", "cross_entropy", "attention", "optimizer"})
    REQUIRE_THAT(checked.out, Catch::Contains("\n" + family + " "));
  REQUIRE_FALSE(std::filesystem::exists(folder / "runs"));
}

TEST_CASE("a plugin's device type trains, evaluates and decodes as the CPU does") {
  const TextFolder folder;
  const std::string guarded =
      fmt::format(" --device=guarded --plugin_path='{}'", fixture("devices").string());
  const auto losses_on = [&](const std::string& run, const std::string& more) {
    const std::string into = fmt::format(" --job_log_dir={}", run) + more;
    std::string command = tiny_arguments(6);
    const std::string fixed = "--job_log_dir=run";
    command.replace(command.find(fixed), fixed.size(), into);
    successful(runexp(folder, command + " --set task.train.save_interval_steps=3"));
    for (const char* mode : {"eval", "decode --prompt=a"})
      successful(runexp(folder, command + fmt::format(" --mode={}", mode)));
    return losses_of(folder / run);
  };
  const auto expected = losses_on("cpu", "");
  REQUIRE(expected.size() == 6);
  REQUIRE(losses_on("guarded", guarded) == expected);
  const std::string two = " --devices=2";
  REQUIRE(losses_on("guarded2", guarded + two) == losses_on("cpu2", two));
}

TEST_CASE("a failing run prints one line and exits with 1") {
  const TextFolder folder;
  const Outcome failed = runexp(folder, kTiny +
                                            " --set num_train_steps=50 --set learning_rate=1e30 "
                                            "--set task.learner.max_skipped_in_a_row=2");
  require_one_line_error(failed, 1, "in a row");
}

TEST_CASE("a run trains, reports that it is complete, and rejects another configuration") {
  const TextFolder folder;
  const Outcome trained = successful(runexp(folder, kTiny));
  REQUIRE(trained.errors.empty());
  REQUIRE_THAT(
      read_bytes(folder / "run/hparams.toml"),
      Catch::Contains("path = \"text.txt\"") && Catch::Contains("# --set input.path=text.txt"));

  const Outcome again = successful(runexp(folder, kTiny));
  REQUIRE_THAT(again.out, Catch::Contains("complete"));

  const std::string changed = kTiny + " --set task.learner.ema_decay=0.5";
  require_one_line_error(runexp(folder, changed), 2, "task.learner.ema_decay: 0.0 -> 0.5");
  REQUIRE(runexp(folder, changed + " --restart").exit_code == 0);

  // The configuration in the run's directory is the requested one.
  REQUIRE(runexp(folder, changed + " --diff=run").out ==
          "quickstart.CharLm and run have the same configuration\n");
  REQUIRE(runexp(folder, kTiny + " --diff=run").out == "task.learner.ema_decay: 0.0 -> 0.5\n");
}

TEST_CASE("--mode=plan plans the memory of a run with as many devices and threads") {
  const TemporaryDirectory folder;
  const std::string small =
      "--exp=c4.Spmd1B --smoke --devices=4 --threads=8 --set ici_mesh_shape=[1,4,1] --job_log_dir=";
  REQUIRE(runexp(folder, small + "run").exit_code == 0);
  REQUIRE(runexp(folder, small + "planned --mode=plan").exit_code == 0);
  REQUIRE(read_bytes(folder / "planned/plan.json") == read_bytes(folder / "run/plan.json"));
}

TEST_CASE("who follows a job is told at once what is waited for") {
  const TextFolder folder;
  REQUIRE(shell(folder.path(), tiny_command(1)).exit_code == 0);
  const auto followed = [&](const std::string& directory) {
    std::string command = tiny_command(1);
    command.replace(command.find("=run "), 4, "=" + directory);
    return shell(folder.path(), command +
                                    " --mode=eval --checkpoint=follow "
                                    "--set eval.follow_patience_seconds=0.1 "
                                    "--set eval.follow_poll_seconds=0.05");
  };
  const Outcome mistyped = successful(followed("rum"));
  REQUIRE_THAT(mistyped.out,
               Catch::Contains("waiting up to 0.1 s (eval.follow_patience_seconds) for a job to "
                               "create rum, which does not exist; did you mean 'run'?\n"));
  REQUIRE_FALSE(std::filesystem::exists(folder / "rum"));
  std::filesystem::create_directory(folder / "empty");
  REQUIRE_THAT(followed("empty").out,
               Catch::Contains(" for the first checkpoint in empty/checkpoints\n"));
  REQUIRE_THAT(followed("run").out, !Catch::Contains("waiting"));
}

TEST_CASE("--config repeats a run from its directory") {
  const TemporaryDirectory folder;
  write_small_text(folder.path(), 1000);
  REQUIRE(runexp(folder, kTiny).exit_code == 0);
  const auto again = [&](const std::string& arguments) {
    successful(runexp(folder, "--config=run --threads=1 --job_log_dir=" + arguments));
  };
  again("second");
  REQUIRE(losses_of(folder / "second") == losses_of(folder / "run"));
  again("longer --set task.train.num_train_steps=6");
  REQUIRE(losses_of(folder / "longer").size() == 6);
  require_one_line_error(runexp(folder, "--config=absent"), 2, "--config=absent: ");
}

TEST_CASE("--dump_graph writes text and a drawing, and --dry_run takes no step") {
  const TextFolder folder;
  successful(runexp(folder, kTiny + " --dry_run --dump_graph=lower"));
  bool text = false;
  bool drawing = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run")) {
    const std::string name = entry.path().filename().string();
    if (name.find("lower") == std::string::npos) continue;
    text = text || name.ends_with(".txt");
    drawing = drawing || name.ends_with(".svg");
  }
  REQUIRE((text && drawing));
  REQUIRE_THAT(read_bytes(folder / "run/metrics.jsonl"), !Catch::Contains("\"loss\""));
}

TEST_CASE("--mode=plan predicts the speed on a GPU that is not there, and writes it as JSON") {
  const TextFolder folder;
  const Outcome plain = runexp(folder, kTiny + " --mode=plan");
  const Outcome predicted =
      successful(runexp(folder, kTiny + " --mode=plan --hardware=h100 --output=plan.json"));
  REQUIRE_THAT(plain.out, !Catch::Contains("predicted for"));
  REQUIRE_THAT(predicted.out, Catch::Contains("predicted for NVIDIA H100 SXM, not measured") &&
                                  Catch::Contains("tokens per second"));
  REQUIRE_THAT(read_bytes(folder / "plan.json"), Catch::Contains("\"hardware\": \"h100\""));
}

TEST_CASE("a bad hardware file ends a plan with one line and the code of bad usage") {
  const TextFolder folder;
  write_bytes(folder / "mine.toml", "title = \"Mine\"\n[memory]\nbandwidth = -3.0\n");
  const Outcome outcome = with_code(2, runexp(folder, kTiny + " --mode=plan --hardware=mine.toml"));
  REQUIRE(outcome.errors ==
          "runexp: mine.toml: missing fields: kind, launch_overhead, peak_flops.bf16, "
          "peak_flops.f32, memory.bytes, link.bandwidth, link.latency, network.bandwidth, "
          "network.latency, efficiency.products, efficiency.copies, efficiency.links; `runexp "
          "--mode=plan --help` names files that have all of them\n");
}

TEST_CASE("--describe shows where each value was set") {
  const TemporaryDirectory folder;
  const Outcome described = successful(
      runexp(folder, "--exp=SourceLm --describe --set num_layers=6 --set task.train.seed=7"));
  REQUIRE_THAT(described.out, Catch::Contains("# --set num_layers=6") &&
                                  Catch::Contains("# --set task.train.seed=7") &&
                                  Catch::Contains("# inherited from task.model.lm_tpl") &&
                                  Catch::Contains("# experiments/quickstart/"));
}

}  // namespace
}  // namespace tessera
