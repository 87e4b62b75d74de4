// SPDX-License-Identifier: Apache-2.0
// The flags of runexp.
#include "plugins/command_line.h"

#include <filesystem>
#include <sstream>

#include <fmt/ranges.h>

#include "plugins/flags.h"
#include "plugins/loader.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

std::string error_for(const Words& words) {
  return error_of([&] { parse_command_line(words); });
}

TEST_CASE("flags are parsed") {
  const CommandLine line = parse_command_line(
      {"--exp=a.B", "--set", "x=1", "--set=y=[1,2]", "--threads=3", "--mode=eval", "--job_log_dir",
       "/tmp/run", "--profile=10:3", "--dump_graph=lower", "--restart", "--allow_config_change",
       "--allow_code_change", "--dry_run", "--plugin_path=p", "--plugin_path=q"});
  REQUIRE(line.action == CommandLine::Action::kRun);
  REQUIRE(line.experiment == "a.B");
  REQUIRE(line.sets == Words{"x=1", "y=[1,2]"});
  REQUIRE(line.threads == 3);
  REQUIRE(line.run.mode == RunMode::kEval);
  REQUIRE(line.run.job_log_dir == "/tmp/run");
  REQUIRE(line.run.profile.has_value());
  REQUIRE(line.run.profile->start == 10);
  REQUIRE(line.run.profile->steps == 3);
  REQUIRE(line.run.dump_graph == "lower");
  REQUIRE((line.run.restart && line.run.allow_config_change && line.run.allow_code_change &&
           line.run.dry_run));
  REQUIRE(line.plugin_path == std::vector<std::filesystem::path>{"p", "q"});
}

TEST_CASE("--smoke is a flag, and --devices is known to be given") {
  const CommandLine line = parse_command_line({"--exp=a.B", "--smoke"});
  REQUIRE(line.smoke);
  REQUIRE_FALSE(line.has_devices);
  REQUIRE(parse_command_line({"--exp=a.B", "--devices=1"}).has_devices);
  REQUIRE_FALSE(parse_command_line({"--exp=a.B"}).smoke);
  REQUIRE(error_for({"--exp=a.B", "--smoke=2"}) == "--smoke takes no value");
  REQUIRE(error_for({"--exp=a.B", "--smok"}) == "unknown flag --smok; did you mean --smoke?");
  REQUIRE_THAT(error_for({"--mode=selfcheck", "--smoke"}),
               Catch::StartsWith("--smoke cannot be used with --mode=selfcheck"));
}

TEST_CASE("each action is parsed") {
  using Action = CommandLine::Action;
  for (const char* help : {"--help", "-h", "help"})
    REQUIRE(parse_command_line({help}).action == Action::kHelp);
  REQUIRE(parse_command_line({"--list"}).action == Action::kList);
  REQUIRE(parse_command_line({"--version"}).action == Action::kVersion);
  REQUIRE(parse_command_line({"--exp=a", "--describe"}).action == Action::kDescribe);
  REQUIRE(parse_command_line({"--exp=a", "--diff=b"}).action == Action::kDiff);
  REQUIRE(parse_command_line({"new", "a/b"}).action == Action::kNew);
  REQUIRE(parse_command_line({"new", "a/b"}).new_project == "a/b");
  REQUIRE(parse_command_line({"--mode=selfcheck", "--threads=3"}).action == Action::kSelfcheck);
}

TEST_CASE("common spellings of values are accepted") {
  const auto step_of = [](const std::string& text) {
    return parse_command_line({"--exp=a", "--mode=eval", "--checkpoint=" + text}).run.checkpoint;
  };
  for (const std::string text : {"150", "step_0000000150", "step_150", "1.5e2"}) {
    INFO(text);
    if (text == "1.5e2") {
      REQUIRE_THROWS_WITH(step_of(text), Catch::Contains("a step's number"));
      continue;
    }
    REQUIRE(step_of(text).kind == CheckpointChoice::Kind::kStep);
    REQUIRE(step_of(text).step == 150);
  }
  REQUIRE_THROWS_WITH(step_of("step_"), Catch::Contains("--checkpoint=step_: expected newest"));
  for (const Words& words : {Words{"--prompt="}, Words{"--prompt", ""}}) {
    Words all = {"--exp=a", "--mode=decode", "--prompt=x"};
    all.insert(all.end(), words.begin(), words.end());
    REQUIRE(parse_command_line(all).run.prompts == Words{"x", ""});
  }
  REQUIRE(parse_command_line({"--exp=a", "--mode=export", "--output=o", "--max_shard_bytes=5e9"})
              .run.max_shard_bytes == 5'000'000'000);
}

TEST_CASE("unknown and misused flags are errors that suggest the nearest flag") {
  REQUIRE(error_for({"--expp=a"}) == "unknown flag --expp; did you mean --exp?");
  REQUIRE(error_for({"--exp=a", "--dryrun"}) == "unknown flag --dryrun; did you mean --dry_run?");
  REQUIRE(error_for({"--zzzzzzzz"}) ==
          "unknown flag --zzzzzzzz; --help lists them; a knob or a field is set with --set "
          "zzzzzzzz=VALUE");
  REQUIRE_THAT(error_for({"--num_layers=3"}), Catch::EndsWith("is set with --set num_layers=3"));
  REQUIRE(error_for({"-exp=a"}) == "'-exp=a' is not a flag; flags begin with --: --exp=a?");
  REQUIRE(error_for({"ChatLm"}) ==
          "'ChatLm' is not a flag; --help lists them; an experiment is given as --exp=ChatLm");
  REQUIRE(error_for({"--exp=a", "num_layers=2"}) ==
          "'num_layers=2' is not a flag; did you mean --set num_layers=2?");
  REQUIRE(error_for({"--exp=a", "--restart=yes"}) == "--restart takes no value");
  for (const Words& words : {Words{"new"}, {"new", "a", "b"}, {"new", "--exp=a"}})
    REQUIRE(error_for(words) ==
            "new takes the name of a project and nothing else: runexp new my_project");
  REQUIRE(error_for({"--exp"}) == "--exp needs a value; --help says which");
  REQUIRE(error_for({"--exp=a", "--exp=b"}) == "--exp is given more than once");
  REQUIRE(error_for({}) ==
          "no experiment is given: use --exp=FAMILY.Name; --list shows the experiments, --help the "
          "flags");
}

TEST_CASE("invalid values are errors") {
  REQUIRE(error_for({"--exp=a", "--threads=0"}) ==
          "--threads=0: expected a whole number, 1 or more");
  REQUIRE(error_for({"--exp=a", "--threads=two"}) ==
          "--threads=two: expected a whole number, 1 or more");
  REQUIRE_THAT(error_for({"--exp=a", "--threads=100000"}),
               Catch::StartsWith("--threads=100000: expected at most ") &&
                   Catch::Contains("; this process may use "));
  REQUIRE(error_for({"--exp=a", "--devices=5000"}) ==
          "--devices=5000: a process drives at most 1024; start more processes (mpirun, Slurm)");
  REQUIRE(parse_command_line({"--exp=a", "--mode=plan", "--devices=5000"}).run.devices == 5000);
  REQUIRE(error_for({"--exp=a", "--devices=0"}) ==
          "--devices=0: expected a whole number, 1 or more");
  REQUIRE(error_for({"--exp=a", "--mode=decod"}) ==
          "--mode=decod: expected one of train, eval, decode, plan, export, import, replay, "
          "calibrate, selfcheck, sweep; did you mean "
          "'decode'?");
  REQUIRE(error_for({"--exp=a", "--mode=import"}) ==
          "--mode=import reads a directory: give --input=DIR");
  REQUIRE(error_for({"--exp=a", "--mode=export", "--output=x", "--format=onnx"}) ==
          "--format=onnx: expected hf, the only format of export and import");
  REQUIRE(error_for({"--exp=a", "--mode=export"}) ==
          "--mode=export writes a directory: give --output=DIR");
  REQUIRE(error_for({"--exp=a", "--mode=import", "--input=x", "--dtype=bf16"}) ==
          "--dtype needs --mode=export");
  REQUIRE(error_for({"--exp=a", "--mode=export", "--output=x", "--max_shard_bytes=5GB"}) ==
          "--max_shard_bytes=5GB: expected a whole number, 1 or more");
  REQUIRE(error_for({"--exp=a", "--checkpoint=all"}) ==
          "--checkpoint needs --mode=eval, decode, export or replay (auto-fallback: train)");
  REQUIRE(error_for({"--exp=a", "--mode=decode", "--checkpoint=auto-fallback"}) ==
          "--checkpoint=auto-fallback needs --mode=train; give newest or a step's number");
  REQUIRE(error_for({"--exp=a", "--mode=decode", "--checkpoint=all"}) ==
          "--checkpoint=all and follow need --mode=eval; give newest or a step's number");
  REQUIRE(error_for({"--exp=a", "--mode=eval", "--checkpoint=newst"}) ==
          "--checkpoint=newst: expected newest, all, follow, auto-fallback or a step's number; did "
          "you mean "
          "'newest'?");
  REQUIRE(error_for({"--exp=a", "--mode=trian"}) ==
          "--mode=trian: expected one of train, eval, decode, plan, export, import, replay, "
          "calibrate, selfcheck, sweep; did you mean "
          "'train'?");
  REQUIRE(error_for({"--exp=a", "--profile=10"}) ==
          "--profile=10: expected START:N, such as 10:3, or off");
  REQUIRE(error_for({"--exp=a", "--profile=10:0"}) ==
          "--profile=0: expected a whole number, 1 or more");
  REQUIRE(error_for({"--exp=a", "--dump_graph=fused"}) ==
          "--dump_graph=fused: expected one of trace, remat, lower, fuse; did you mean 'fuse'?");
  REQUIRE(error_for({"--exp=a", "--prompt=hello"}) == "--prompt needs --mode=decode");
}

TEST_CASE("the hardware of a plan is a known name or a file, and only a plan takes it") {
  const auto given = [](const std::string& hardware) {
    return *parse_command_line({"--exp=a", "--mode=plan", "--hardware=" + hardware}).run.hardware;
  };
  REQUIRE(given("h200").title == "NVIDIA H200 SXM");
  const TemporaryDirectory folder;
  const std::string file = (folder / "mine.toml").string();
  std::filesystem::copy_file(hardware_folder() / "b200.toml", file);
  REQUIRE(given(file).title == "NVIDIA B200 SXM");
  REQUIRE(given(file).name == file);
  REQUIRE(error_for({"--exp=a", "--mode=plan", "--hardware=h2000"}) ==
          "--hardware=h2000: unknown hardware; did you mean 'h200'?; expected a100, b200, h100, "
          "h200, rtx4090, tpu_v4, tpu_v5p, zen3_2c, zen3_2c_2_devices or the path of a TOML file");
  REQUIRE(error_for({"--exp=a", "--hardware=h200"}) == "--hardware needs --mode=plan or calibrate");
  REQUIRE(error_for({"--exp=a", "--mode=eval", "--hardware=h200"}) ==
          "--hardware needs --mode=plan or calibrate");
  REQUIRE(error_for({"--exp=a", "--mode=plan", "--hardware=h200", "--device=cpu"}) ==
          "--device cannot be used with --hardware, which names the device that is planned for");
  REQUIRE(error_for({"--exp=a", "--config=x"}) ==
          "--exp and --config both name an experiment: give one of them");
  REQUIRE_THAT(error_for({"--config=x", "--smoke"}), Catch::Contains("--config has none"));
  REQUIRE(parse_command_line({"--config=runs/x"}).config == "runs/x");
  REQUIRE(error_for({"--exp=a", "--compare_plan=x"}) == "--compare_plan needs --mode=plan");
  REQUIRE(error_for({"--exp=a", "--mode=eval", "--output=x"}) ==
          "--output needs --mode=export, plan or calibrate");
}

TEST_CASE("the self-check takes no experiment") {
  REQUIRE(error_for({"--mode=selfcheck", "--exp=a"}) ==
          "--exp cannot be used with --mode=selfcheck, which takes only --threads, --device and "
          "--plugin_path");
  REQUIRE(
      error_for({"--mode=selfcheck", "--dry_run"}) ==
      "--dry_run cannot be used with --mode=selfcheck, which takes only --threads, --device and "
      "--plugin_path");
  REQUIRE_THAT(error_for({"--mode=selfchek"}), Catch::Contains("did you mean 'selfcheck'?"));
}

TEST_CASE("calibration takes no experiment") {
  const CommandLine line = parse_command_line(
      {"--mode=calibrate", "--devices=2", "--threads=2", "--output=a.toml", "--restart"});
  REQUIRE(line.action == CommandLine::Action::kCalibrate);
  REQUIRE(line.run.devices == 2);
  REQUIRE(line.run.output == "a.toml");
  REQUIRE(line.run.restart);
  REQUIRE_THAT(error_for({"--mode=calibrate", "--exp=a"}),
               Catch::StartsWith("--exp cannot be used with --mode=calibrate, which takes only "
                                 "--threads, --devices, --device,"));
  REQUIRE_THAT(error_for({"--mode=calibrate", "--hardware=h200"}),
               Catch::StartsWith("--hardware cannot be used with --mode=calibrate"));
  REQUIRE_THAT(error_for({"--mode=calibrat"}), Catch::Contains("did you mean 'calibrate'?"));
}

TEST_CASE("reports, comparisons and watching take runs, and no experiment") {
  using Action = CommandLine::Action;
  const auto runs = [](const CommandLine& line) {
    std::vector<std::string> names;
    for (const auto& run : line.runs) names.push_back(run.string());
    return names;
  };
  const CommandLine report = parse_command_line({"--report=runs/a"});
  REQUIRE(report.action == Action::kReport);
  REQUIRE(runs(report) == std::vector<std::string>{"runs/a"});
  const std::vector<std::string> three = {"a", "b", "c"};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--compare", "a", "b", "c", "--output=x"},
        std::vector<std::string>{"--compare=a", "--compare=b", "--compare", "c", "--output=x"}}) {
    const CommandLine compare = parse_command_line(arguments);
    REQUIRE(compare.action == Action::kCompare);
    REQUIRE(runs(compare) == three);
    REQUIRE(compare.run.output == "x");
  }
  const CommandLine watch = parse_command_line({"--watch", "runs/a", "--port=8080"});
  REQUIRE(watch.action == Action::kWatch);
  REQUIRE(watch.port == 8080);
  REQUIRE(error_for({"--report=a", "--exp=b"}) == "--exp cannot be used with --report");
  REQUIRE(error_for({"--compare", "a", "b", "--smoke"}) ==
          "--smoke cannot be used with --compare, which takes only --output");
  REQUIRE(error_for({"--watch=a", "--port=65536"}) ==
          "--port=65536: expected a number up to 65535");
  REQUIRE(error_for({"--watch=a", "--port=-1"}) == "--port=-1: expected a whole number, 0 or more");
  REQUIRE(error_for({"--exp=a", "--port=1"}) == "--port needs --watch=RUN");
  REQUIRE_THAT(error_for({"--watch"}), Catch::Contains("needs a value"));
}

TEST_CASE("early steps are traced unless --profile chooses others or none") {
  REQUIRE(parse_command_line({"--exp=a"}).traces_early_steps);
  REQUIRE_FALSE(parse_command_line({"--exp=a", "--profile=10:3"}).traces_early_steps);
  const CommandLine off = parse_command_line({"--exp=a", "--profile=off"});
  REQUIRE_FALSE(off.traces_early_steps);
  REQUIRE_FALSE(off.run.profile.has_value());
}

TEST_CASE("the help text names the hardware files of the tree, which the build finds") {
  REQUIRE(hardware_names(own_plugins("hardware")) == hardware_names(hardware_folder()));
  for (const std::string& name : hardware_names(hardware_folder()))
    REQUIRE_THAT(help_text(), Catch::Contains(name));
}

TEST_CASE("the help text lists every flag, in at most 100 columns") {
  const std::string help = help_text();
  for (const std::string& flag : known_flags()) REQUIRE_THAT(help, Catch::Contains("--" + flag));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    REQUIRE(line.size() <= 100);
  }
}

}  // namespace
}  // namespace tessera
