// SPDX-License-Identifier: Apache-2.0
// The flags of runexp.
#include "plugins/runexp/commands.h"

#include <filesystem>
#include <memory>
#include <sstream>

#include "plugins/loader.h"
#include "tasks/planner/hardware/hardware.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

std::string error_for(const Words& words) {
  return error_of([&] { parse_command_line(words); });
}

// Returns the parsed flags of the command as arguments that give the same flags.
Words read_by_command(const Words& words) {
  return to_arguments(parse_command_line(words).command->flags());
}

std::string name_for(const Words& words) {
  return parse_command_line(words).command->info().name();
}

TEST_CASE("a command line is read by its command, and written back") {
  const Words run = {"--exp=a.B",
                     "--plugin_path=p",
                     "--plugin_path=q",
                     "--set",
                     "x=1",
                     "--set",
                     "y=[1,2]",
                     "--threads=3",
                     "--job_log_dir=/tmp/run",
                     "--dry_run",
                     "--restart",
                     "--allow_config_change",
                     "--allow_code_change",
                     "--profile=10:3",
                     "--dump_graph=lower"};
  REQUIRE(read_by_command(run) == run);
  const Words sweep = {"--exp=a.B",
                       "--sweep",
                       "a=1,2",
                       "--sweep",
                       "b=3",
                       "--sweep_processes=4",
                       "--sweep_trials=5",
                       "--sweep_seed=6",
                       "--sweep_goal=max",
                       "--retry_failed"};
  Words with_mode = sweep;
  with_mode.insert(with_mode.begin(), "--mode=sweep");
  REQUIRE(read_by_command(with_mode) == sweep);
  for (const Words& words : {Words{"--prompt="}, Words{"--prompt", ""}}) {
    Words all = {"--exp=a", "--mode", "decode", "--prompt=x"};
    all.insert(all.end(), words.begin(), words.end());
    REQUIRE(read_by_command(all) == Words{"--exp=a", "--prompt=x", "--prompt="});
  }
  REQUIRE(read_by_command({"--compare", "a", "b", "--compare=c", "--output=x"}) ==
          Words{"--compare=a", "--compare=b", "--compare=c", "--output=x"});
  REQUIRE(read_by_command({"--exp=a", "--devices=1"}) == Words{"--exp=a", "--devices=1"});
  REQUIRE(read_by_command({"new", "a/b"}) == Words{"--new_project=a/b"});
}

TEST_CASE("a command is chosen by its mode, its flag or both") {
  REQUIRE(name_for({"--exp=a"}) == "--mode=train");
  REQUIRE(name_for({"--exp=a", "--mode=eval"}) == "--mode=eval");
  REQUIRE(name_for({"--exp=a", "--mode=plan", "--search", "--hardware=h100"}) ==
          "--mode=plan --search");
  REQUIRE(name_for({"--list"}) == "--list");
  REQUIRE(name_for({"--version"}) == "--version");
  REQUIRE(name_for({"--exp=a", "--describe", "--threads=3"}) == "--describe");
  REQUIRE(name_for({"--exp=a", "--diff=b"}) == "--diff");
  REQUIRE(name_for({"--report=runs/a"}) == "--report");
  REQUIRE(name_for({"--watch", "runs/a", "--port=8080"}) == "--watch");
  REQUIRE(name_for({"new", "a/b"}) == "new");
  REQUIRE(name_for({"--mode=selfcheck", "--threads=3"}) == "--mode=selfcheck");
  REQUIRE(name_for({"--mode=calibrate", "--devices=2", "--output=a.toml", "--restart"}) ==
          "--mode=calibrate");
  for (const char* help : {"--help", "-h", "help"}) REQUIRE(asks_help({help}));
  REQUIRE(asks_help({"--mode=sweep", "--help"}));
  REQUIRE_FALSE(asks_help({"--exp=a"}));
}

TEST_CASE("checkpoints are named in several ways") {
  for (const std::string text : {"150", "step_0000000150", "step_150", "newest", "all", "follow"})
    REQUIRE(error_for({"--exp=a", "--mode=eval", "--checkpoint=" + text}) == "no error");
  for (const std::string text : {"1.5e2", "step_", "newst"})
    REQUIRE_THAT(error_for({"--exp=a", "--mode=eval", "--checkpoint=" + text}),
                 Catch::StartsWith("--checkpoint=" + text +
                                   ": expected newest, all, follow or a step's number"));
}

// A command of one flag, for the test below.
struct Extra {
  static constexpr CommandInfo kInfo{.mode = "extra", .summary = "for a test"};
  std::string colour;
  FIELDS(About(colour, "of the page", {.unit = "NAME"}))
  void check() const {}
  CommandResult run(const CommandContext&) const { return {}; }
};

TEST_CASE("a flag that is one line of a struct is read, helped, refused, written and completed") {
  const std::vector<MakeCommand> usual = command_table();
  const std::shared_ptr<void> restored(nullptr, [&](void*) { command_table() = usual; });
  command_table().push_back([] { return command_of<Extra>(); });
  const std::string help = help_text({"--mode=extra", "--help"});
  const Words read = read_by_command({"--mode=extra", "--colour=red"});
  const std::string refused = error_for({"--exp=a", "--colour=red"});
  const std::string near = error_for({"--mode=extra", "--colou=red"});
  const Words completed = completions("./runexp --mode=extra --col");
  const Words modes = completions("./runexp --mode=ex");
  REQUIRE(help == "runexp --mode=extra: for a test\n\n  --colour=NAME          of the page\n");
  REQUIRE(read == Words{"--colour=red"});
  REQUIRE(refused == "--colour needs --mode=extra");
  REQUIRE(near == "unknown flag --colou; did you mean --colour?");
  REQUIRE(completed == Words{"--colour="});
  REQUIRE(modes == Words{"--mode=export", "--mode=extra"});
}

TEST_CASE("flags of other commands are refused, with what they need and the nearest own flag") {
  REQUIRE(error_for({"--mode=sweep", "--step=3"}) ==
          "--step needs --mode=replay or show_batch; the nearest flag of --mode=sweep is --set");
  REQUIRE(error_for({"--exp=a", "--sweep=a=1"}) == "--sweep needs --mode=sweep");
  REQUIRE(error_for({"--exp=a", "--mode=eval", "--retry_failed"}) ==
          "--retry_failed needs --mode=sweep");
  REQUIRE(error_for({"--exp=a", "--mode=plan", "--goal=cost"}) == "--goal needs --search");
  REQUIRE(error_for({"--exp=a", "--goal=cost"}) == "--goal needs --mode=plan --search");
  REQUIRE(error_for({"--exp=a", "--search"}) == "--search needs --mode=plan");
  REQUIRE(error_for({"--exp=a", "--trace=x"}) == "--trace needs --mode=calibrate");
  REQUIRE(error_for({"--exp=a", "--mode=replay", "--step=1", "--restart"}) ==
          "--restart needs --mode=train, sweep, import, merge or calibrate");
  REQUIRE(error_for({"--mode=calibrate", "--trace=x", "--restart"}) ==
          "--restart cannot be used with --mode=calibrate --trace");
  REQUIRE(error_for({"--exp=a", "--port=1"}) == "--port needs --watch");
  REQUIRE(error_for({"--exp=a", "--describe", "--mode=eval"}) ==
          "--mode cannot be used with --describe");
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
  REQUIRE(error_for({"--exp=a", "--mode=plan", "--devices=5000"}) == "no error");
  REQUIRE(error_for({"--exp=a", "--devices=0"}) ==
          "--devices=0: expected a whole number, 1 or more");
  REQUIRE(error_for({"--exp=a", "--mode=decod"}) ==
          "--mode=decod: expected one of train, eval, decode, score, plan, sweep, replay, import, "
          "export, merge, show_batch, calibrate, selfcheck; did you mean 'decode'?");
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
          "--checkpoint=all: --mode=train takes only auto-fallback; others need --mode=eval, "
          "decode, export or replay");
  REQUIRE(error_for({"--exp=a", "--mode=plan", "--checkpoint=all"}) ==
          "--checkpoint needs --mode=train, eval, decode, score, replay or export");
  REQUIRE(error_for({"--exp=a", "--checkpoint=auto-fallback"}) == "no error");
  REQUIRE(error_for({"--exp=a", "--mode=decode", "--checkpoint=auto-fallback"}) ==
          "--checkpoint=auto-fallback needs --mode=train; give newest or a step's number");
  REQUIRE(error_for({"--exp=a", "--mode=export", "--output=x", "--checkpoint=all"}) ==
          "--checkpoint=all and follow need --mode=eval, decode or score; give newest or a step's "
          "number");
  REQUIRE(
      error_for({"--exp=a", "--mode=score", "--requests=x", "--output=y", "--checkpoint=follow"}) ==
      "--output names one file, but --checkpoint=follow may have several scores; leave it out");
  REQUIRE(error_for({"--exp=a", "--mode=eval", "--checkpoint=newst"}) ==
          "--checkpoint=newst: expected newest, all, follow or a step's number; did you mean "
          "'newest'?");
  REQUIRE(error_for({"--exp=a", "--mode=trian"}) ==
          "--mode=trian: expected one of train, eval, decode, score, plan, sweep, replay, import, "
          "export, merge, show_batch, calibrate, selfcheck; did you mean 'train'?");
  REQUIRE(error_for({"--exp=a", "--profile=10"}) ==
          "--profile=10: expected START:N, such as 10:3, or off");
  REQUIRE(error_for({"--exp=a", "--profile=10:0"}) ==
          "--profile=0: expected a whole number, 1 or more");
  REQUIRE(error_for({"--exp=a", "--dump_graph=fused"}) ==
          "--dump_graph=fused: expected one of trace, remat, lower, fuse; did you mean 'fuse'?");
  REQUIRE(error_for({"--exp=a", "--prompt=hello"}) == "--prompt needs --mode=decode");
}

TEST_CASE("the hardware of a plan is a known name or a file, and only a plan takes it") {
  const auto error_of_plan = [](const std::string& hardware) {
    return error_for({"--exp=a", "--mode=plan", "--hardware=" + hardware});
  };
  REQUIRE(error_of_plan("h200") == "no error");
  const TemporaryDirectory folder;
  const std::string file = (folder / "mine.toml").string();
  std::filesystem::copy_file(hardware_folder() / "b200.toml", file);
  REQUIRE(error_of_plan(file) == "no error");
  REQUIRE(error_of_plan("h2000") ==
          "--hardware=h2000: unknown hardware; did you mean 'h200'?; expected a100, b200, h100, "
          "h200, rtx4090, tpu_v4, tpu_v5p, zen3_2c, zen3_2c_2_devices or the path of a TOML file");
  REQUIRE(error_for({"--exp=a", "--hardware=h200"}) ==
          "--hardware needs --mode=plan or --mode=calibrate --trace");
  REQUIRE(error_for({"--exp=a", "--mode=plan", "--hardware=h200", "--device=cpu"}) ==
          "--device cannot be used with --hardware, which names the device that is planned for");
  REQUIRE_THAT(error_for({"--exp=a", "--mode=plan", "--search"}),
               Catch::StartsWith("--search predicts times on a device: give --hardware=NAME"));
  REQUIRE(error_for({"--exp=a", "--config=x"}) ==
          "--exp and --config both name an experiment: give one of them");
  REQUIRE_THAT(error_for({"--config=x", "--smoke"}), Catch::Contains("--config has none"));
  REQUIRE(error_for({"--config=runs/x"}) == "no error");
  REQUIRE(error_for({"--exp=a", "--compare_plan=x"}) == "--compare_plan needs --mode=plan");
  REQUIRE(error_for({"--exp=a", "--mode=eval", "--output=x"}) ==
          "--output needs --mode=score, plan, export or calibrate");
}

TEST_CASE("commands with few flags list them when they refuse one") {
  REQUIRE(error_for({"--mode=selfcheck", "--exp=a"}) ==
          "--exp cannot be used with --mode=selfcheck, which takes only --threads, --device and "
          "--plugin_path");
  REQUIRE_THAT(error_for({"--mode=selfcheck", "--smoke"}),
               Catch::StartsWith("--smoke cannot be used with --mode=selfcheck"));
  REQUIRE_THAT(error_for({"--mode=selfchek"}), Catch::Contains("did you mean 'selfcheck'?"));
  REQUIRE_THAT(error_for({"--mode=calibrate", "--exp=a"}),
               Catch::StartsWith("--exp cannot be used with --mode=calibrate, which takes only "
                                 "--devices, --threads, --device,"));
  REQUIRE(error_for({"--report=a", "--exp=b"}) == "--exp cannot be used with --report");
  REQUIRE(error_for({"--compare", "a", "b", "--smoke"}) ==
          "--smoke cannot be used with --compare, which takes only --output");
  REQUIRE(error_for({"--watch=a", "--port=65536"}) ==
          "--port=65536: expected a whole number from 0 to 65535");
  REQUIRE_THAT(error_for({"--watch"}), Catch::Contains("needs a value"));
}

TEST_CASE("the help text of a plan names the hardware files of the tree, which the build finds") {
  REQUIRE(hardware_names(own_plugins("hardware")) == hardware_names(hardware_folder()));
  for (const std::string& name : hardware_names(hardware_folder()))
    REQUIRE_THAT(help_text({"--mode=plan", "--help"}), Catch::Contains(name));
}

TEST_CASE("--help is one screen, and that of each command has all its flags and no others") {
  const std::string overview = help_text({"--help"});
  REQUIRE(std::count(overview.begin(), overview.end(), '\n') <= 50);
  for (const auto& command : all_commands()) {
    const CommandInfo& info = command->info();
    REQUIRE_THAT(overview, Catch::Contains("\n  " + info.name()));
    if (info.name() == "new") continue;
    Words words = {"--help"};
    if (!info.mode.empty()) words.push_back(fmt::format("--mode={}", info.mode));
    if (!info.flag.empty()) words.push_back(fmt::format("--{}", info.flag));
    const std::string help = help_text(words);
    int64_t listed = 0;
    std::istringstream lines(help + overview);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      REQUIRE(line.size() <= 100);
      listed += line.starts_with("  --") ? 1 : 0;
    }
    int64_t others = 0;
    std::istringstream screen(overview);
    for (std::string line; std::getline(screen, line);) others += line.starts_with("  --") ? 1 : 0;
    REQUIRE(listed - others == std::ssize(command->flags()));
    for (const Flag& flag : command->flags())
      REQUIRE_THAT(help, Catch::Contains("\n  " + flag.spelling()));
  }
  REQUIRE_THAT(error_of([] {
                 help_text({"--mode=swep", "--help"});
               }),
               Catch::Contains("did you mean 'sweep'?"));
}

TEST_CASE("completion knows flags, modes, experiments' flags and values") {
  REQUIRE(completions("./runexp --mo") == Words{"--mode="});
  REQUIRE(completions("./runexp --mode=s") ==
          Words{"--mode=score", "--mode=selfcheck", "--mode=show_batch", "--mode=sweep"});
  REQUIRE(completions("./runexp --mode s") == Words{"score", "selfcheck", "show_batch", "sweep"});
  REQUIRE(completions("./runexp n") == Words{"new"});
  REQUIRE(completions("./runexp --exp=a --mode=sweep --sweep_g") == Words{"--sweep_goal="});
  REQUIRE(completions("./runexp --mode=sweep --sweep_goal=") ==
          Words{"--sweep_goal=max", "--sweep_goal=min"});
  REQUIRE(completions("./runexp --mode=eval --sweep_").empty());
  REQUIRE(completions("./runexp --re") == Words{"--report=", "--restart"});
  REQUIRE(completions("./runexp --mode=plan --hardware=h") ==
          Words{"--hardware=h100", "--hardware=h200"});
  REQUIRE(completions("").empty());
}

}  // namespace
}  // namespace tessera
