// SPDX-License-Identifier: Apache-2.0
// --mode=replay from the command line: equal steps, a planted wrong kernel, recordings, bad input.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/json.h"
#include "tests/plugins/fixtures.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

Outcome runexp(const fs::path& folder, const std::string& arguments,
               const std::string& environment = "") {
  return shell(folder,
               fmt::format("env {} '{}/bin/runexp' {}", environment, TESSERA_BINARY_DIR, arguments),
               std::chrono::seconds(120));
}

// A folder with a run of 5 steps, of which steps 2, 4 and 5 are saved: in `run`, or in a copy that
// a test may damage.
class ReplayedRun {
 public:
  explicit ReplayedRun(std::string name = "run") : name_(std::move(name)) {
    if (name_ != "run") fs::copy(trained() / "run", trained() / name_, fs::copy_options::recursive);
  }

  Outcome replay(const std::string& arguments, const std::string& environment = "") const {
    const bool has_threads = arguments.find("--threads=") != std::string::npos;
    return runexp(trained().path(),
                  fmt::format("--config={} --mode=replay {} {}", name_,
                              has_threads ? "" : "--threads=1", arguments),
                  environment);
  }
  void require_refused(const std::string& arguments, const std::string& text) const {
    const Outcome outcome = replay(arguments);
    INFO(arguments << "\n" << outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
    REQUIRE_THAT(outcome.errors, Catch::StartsWith("runexp: ") && Contains(text));
  }
  fs::path operator/(const std::string& name) const { return trained() / name; }

 private:
  static const TemporaryDirectory& trained() {
    static const TemporaryDirectory folder;
    static const bool is_trained = [] {
      write_small_text(folder.path());
      successful(runexp(folder.path(), tiny_arguments(5) + " --set task.train.save_interval_steps=2"
                                                           " --set task.train.save_max_to_keep=0"));
      return true;
    }();
    static_cast<void>(is_trained);
    return folder;
  }

  std::string name_;
};

void require_equal(const Outcome& outcome) {
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE_THAT(outcome.out, Contains("the recorded step is reproduced here"));
}

// The lines of a recording's program.
std::vector<std::string> program_of(const fs::path& recording) {
  const std::string text = read_bytes(recording);
  const Json header = parse_json(text.substr(0, text.find('\n')), "recording");
  std::vector<std::string> lines;
  for (const Json& line : header.at("programs").as_array().at(0).as_array())
    lines.push_back(line.as_string());
  return lines;
}

TEST_CASE("a replayed step has the bits of the run, at any number of threads") {
  const ReplayedRun run;
  const Outcome after_checkpoint = run.replay("--step=3 --against=threads:2");
  require_equal(after_checkpoint);
  REQUIRE_THAT(after_checkpoint.out, Contains("from the checkpoint of step 2\n") &&
                                         Contains("there: cpu: 2 threads") &&
                                         Contains("launches wrote the same bits on both sides"));
  const Outcome trained = run.replay("--step=4");
  require_equal(trained);
  REQUIRE_THAT(trained.out, Contains("the checkpoint of step 2 after training 1 step\n"));
}

TEST_CASE("a step of any phase is replayed with the program of its phase") {
  const TemporaryDirectory folder;
  write_small_text(folder.path());
  const std::string phases = "'task.train.phases=[{batch_size=4}, {start_step=2}]'";
  successful(runexp(folder.path(), tiny_arguments(4) + " --set " + phases));
  for (const std::string step : {"2", "4"})
    require_equal(runexp(folder.path(), "--config=run --mode=replay --threads=1 --step=" + step));
}

TEST_CASE("a planted wrong launch is named, with its place and what it wrote") {
  const ReplayedRun run;
  REQUIRE(run.replay("--step=3 --record=cpu.rec").exit_code == 0);
  const std::vector<std::string> program = program_of(run / "cpu.rec");
  size_t launch = 0;
  for (int64_t seen = 0; seen < 3; ++launch) {
    REQUIRE(launch < program.size());
    if (program[launch].starts_with("rms_norm ") || program[launch].starts_with("einsum ")) ++seen;
  }
  const std::string& line = program[launch - 1];
  const std::string op = line.substr(0, line.find(' '));
  const auto is_op = [&](const std::string& each) { return each.starts_with(op + " "); };
  const auto before =
      std::count_if(program.begin(), program.begin() + static_cast<ptrdiff_t>(launch), is_op);

  const std::string wrong = fmt::format("TESSERA_WRONG_LAUNCH={}:{}", op, before);
  const std::string plugin = fmt::format(" --plugin_path='{}'", fixture("wrong").string());
  const std::string against = "--step=3 --against=device:wrong" + plugin;
  const Outcome found = with_code(1, run.replay(against, wrong));
  REQUIRE_THAT(found.out, Contains(fmt::format("first difference: launch {} of {}: {} [", launch,
                                               program.size(), op)));
  const size_t path = line.find(" in ") + 1;
  REQUIRE_THAT(found.out,
               Contains("\n  " + line.substr(path, line.find(':') - path) + ", layers/"));
  REQUIRE_THAT(found.out, Contains("1 of ") && Contains("elements differ; the first, [0"));
  REQUIRE_THAT(found.out, Contains("its inputs are equal: this launch makes the difference"));
  REQUIRE_THAT(found.out,
               Contains("the recorded step is reproduced here") && Contains("it is not there"));

  const Outcome alone = with_code(1, run.replay(against + " --isolate", wrong));
  REQUIRE_THAT(alone.out, Contains(fmt::format("1 of {} launches differ, each with the inputs",
                                               program.size())) &&
                              Contains(fmt::format("launch {} of ", launch)));
  require_equal(run.replay(against, "TESSERA_WRONG_LAUNCH=none:1"));
}

TEST_CASE(
    "--find=nonfinite says that a good step is finite, and where a bad one begins not to be") {
  const ReplayedRun run;
  const Outcome good = successful(run.replay("--step=3 --find=nonfinite"));
  REQUIRE_THAT(good.out, Contains("launches wrote finite values\n"));
  run.require_refused("--step=3 --find=nan", "--find=nan: expected one of nonfinite");
  run.require_refused("--step=3 --find=nonfinite --record=a.rec",
                      "--record cannot be used with --find");

  const TextFolder folder;
  const std::string bad = " --devices=2 --set ici_mesh_shape=[1,2,1] --set learning_rate=1e37";
  const Outcome trained = runexp(folder.path(), tiny_arguments(4) + bad);
  INFO(trained.out << trained.errors);
  REQUIRE_THAT(trained.out, Contains(" skipped: loss ") &&
                                Contains("\nthe first value that is not finite: launch ") &&
                                Contains("its inputs are finite: it begins here"));
  const size_t begin = trained.out.find("the first value that is not finite");
  const std::string found = trained.out.substr(begin, trained.out.find("\n", begin) - begin);
  const size_t step = trained.out.find(" skipped: loss ") - 1;
  const Outcome again = with_code(
      1, runexp(folder.path(), fmt::format("--config=run --mode=replay --checkpoint=0 --step={} "
                                           "--find=nonfinite --threads=1",
                                           trained.out[step])));
  REQUIRE_THAT(again.out, Contains(found));
}

TEST_CASE("other kinds of devices and processor levels agree within a tolerance") {
  const ReplayedRun run;
  for (const std::string other : {"device:reference", "cpu_level:portable"}) {
    const Outcome outcome =
        successful(run.replay("--step=3 --isolate --tolerance=1e-5 --against=" + other));
    REQUIRE_THAT(outcome.out, Contains("wrote the same within a tolerance of 1e-05"));
  }
  const Outcome bits = with_code(1, run.replay("--step=3 --isolate --against=device:reference"));
  REQUIRE_THAT(bits.out, Contains("launches differ, each with the inputs of the other side"));
}

TEST_CASE("a recording is compared with, and refused if damaged or of another program") {
  const ReplayedRun run;
  REQUIRE(run.replay("--step=3 --record=step3.rec").exit_code == 0);
  const Outcome equal = run.replay("--step=3 --threads=2 --against=step3.rec");
  require_equal(equal);
  REQUIRE_THAT(equal.out, Contains("launches wrote the same bits on both sides"));
  run.require_refused("--step=5 --against=step3.rec",
                      "cannot be compared: it is of step 3, expected step 5");
  run.require_refused(
      "--step=3 --against=step3.rec --set task.learner.clip_gradient_norm_to_value=0.25",
      "cannot be compared: its program has ");
  run.require_refused("--step=3 --against=step3.rec --tolerance=0.1", "--record_values=outputs");
  run.require_refused("--step=3 --against=step3.rec --isolate", "--record_values=all");
  run.require_refused("--step=3 --against=text.txt", "is not a recording");
  run.require_refused("--step=3 --record=text.txt", "is not a recording");

  const std::string bytes = read_bytes(run / "step3.rec");
  for (const size_t size : {size_t{0}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    write_bytes(run / "short.rec", bytes.substr(0, size));
    const Outcome outcome = run.replay("--step=3 --against=short.rec");
    INFO(size << outcome.errors);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE_THAT(outcome.errors, Contains("short.rec") &&
                                     (Contains("is cut short") || Contains("not a recording")));
  }
  std::string flipped = bytes;
  const size_t hash = flipped.find("\"outputs\": [\"") + 15;
  flipped[hash] = flipped[hash] == '0' ? '1' : '0';
  write_bytes(run / "flipped.rec", flipped);
  const Outcome damaged = with_code(1, run.replay("--step=3 --against=flipped.rec"));
  REQUIRE_THAT(damaged.errors, Contains("flipped.rec is damaged: its checksum is wrong"));
}

TEST_CASE("replay begins from the initial weights without a checkpoint and refuses a damaged one") {
  const ReplayedRun run("damaged");
  const fs::path saved = run / "damaged/checkpoints/step_0000000002";
  for (const auto& file : fs::directory_iterator(saved)) {
    std::string bytes = read_bytes(file.path());
    for (size_t i = bytes.size() / 2; i < std::min(bytes.size(), bytes.size() / 2 + 64); ++i)
      bytes[i] = static_cast<char>(~bytes[i]);
    write_bytes(file.path(), bytes);
  }
  run.require_refused("--step=3", "to replay from an earlier step give --checkpoint=0");
  require_equal(run.replay("--step=3 --checkpoint=0"));
  fs::remove_all(run / "damaged/checkpoints");
  const Outcome fresh = run.replay("--step=2 --against=threads:2");
  require_equal(fresh);
  REQUIRE_THAT(fresh.out, Contains("from the initial weights after training 1 step\n"));
}

TEST_CASE("bad flags of a replay are one line with exit code 2") {
  const ReplayedRun run;
  run.require_refused("--step=6", "--step=6: the run has 5 steps");
  run.require_refused("--step=0", "--step=0: expected a whole number, 1 or more");
  run.require_refused("", "needs the number of a step: --step=N");
  run.require_refused("--step=3 --against=thread:2", "did you mean 'threads'?");
  run.require_refused("--step=3 --against=gone.rec", "no such file");
  run.require_refused("--step=3 --against=device:quantum",
                      "--against=device:quantum: unknown kind of device; expected");
  run.require_refused("--step=3 --against=device:cpi",
                      "--against=device:cpi: unknown kind of device; did you mean 'cpu'?");
  run.require_refused("--step=3 --kernels_of=cpi",
                      "--kernels_of=cpi: unknown kind of device; did you mean 'cpu'?");
  run.require_refused("--step=3 --against=cpu_level:avx9", "this processor has portable");
  run.require_refused("--step=3 --against=build:text.txt", "not a program");
  run.require_refused("--step=3 --against=threads:0", "expected a whole number, 1 or more");
  run.require_refused("--step=3 --tolerance=0.1", "give --against");
  run.require_refused("--step=3 --against=threads:2 --tolerance=-1",
                      "expected a number, at least 0 and below 1");
  run.require_refused("--step=3 --checkpoint=4", "begins from a checkpoint of step 2 or before");
  run.require_refused("--step=3 --checkpoint=1", "step 1");
  run.require_refused("--step=3 --job_log_dir=nothing", "nothing holds no run");
  run.require_refused("--step=3 --restart",
                      "--restart needs --mode=train, sweep, import, merge or calibrate");
  const Outcome other_mode = with_code(2, runexp(run / "", tiny_arguments(5) + " --step=3"));
  REQUIRE_THAT(other_mode.errors, Contains("--step needs --mode=replay"));
}

TEST_CASE("a replay on several devices compares each of them") {
  const TextFolder folder;
  const std::string mesh = " --devices=2 --set ici_mesh_shape=[1,2,1]";
  REQUIRE(runexp(folder.path(), tiny_arguments(3) + mesh).exit_code == 0);
  const std::string replay = "--config=run --mode=replay --threads=2 --step=1 ";
  require_equal(runexp(folder.path(), replay + "--against=threads:4"));
  const Outcome wrong =
      with_code(1, runexp(folder.path(),
                          fmt::format("{} --against=device:wrong --plugin_path='{}'", replay,
                                      fixture("wrong").string()),
                          "TESSERA_WRONG_LAUNCH=einsum:9"));
  REQUIRE_THAT(wrong.out, Contains(" on device 0\n") || Contains(" on device 1\n"));
  REQUIRE_THAT(wrong.out, Contains("its inputs are equal: this launch makes the difference"));
}

TEST_CASE("with mesh-invariant numerics a step is compared with other meshes by its values") {
  const TextFolder folder;
  const auto replay = [&](const std::string& arguments, const std::string& environment = "") {
    return runexp(folder.path(), "--config=run --mode=replay --threads=1 --step=1 " + arguments,
                  environment);
  };
  const std::string two = " --devices=2 --set ici_mesh_shape=[1,2,1]";
  const std::string numerics = " --set task.train.numerics=mesh_invariant";
  REQUIRE(runexp(folder.path(), tiny_arguments(3) + numerics + two).exit_code == 0);
  for (const std::string shape : {"[1,1,1]", "[1,1,2]"}) {
    const Outcome equal = replay("--devices=2 --against=mesh:" + shape);
    require_equal(equal);
    REQUIRE_THAT(equal.out, Contains("values have the same bits on both meshes\n"));
  }
  const std::string wrong =
      fmt::format("--device=wrong --plugin_path='{}' ", fixture("wrong").string());
  with_code(0, replay(wrong + "--devices=2 --record=two.rec", "TESSERA_WRONG_LAUNCH=einsum:9"));
  const std::string one = "--devices=1 --set mesh.ici_mesh_shape=[1,1,1] --against=two.rec";
  const Outcome differs = with_code(1, replay(one));
  REQUIRE_THAT(differs.out, Contains("\nfirst difference: einsum [") &&
                                Contains(", output 0, f32[") && Contains(" values ") &&
                                Contains(" more differ, next:\n  "));
  REQUIRE_THAT(with_code(2, replay(one + " --tolerance=0.1")).errors,
               Contains("compared by sums of hashes, without --tolerance or --isolate"));
  REQUIRE_THAT(with_code(2, replay("--against=mesh:[1,1,1] --isolate")).errors,
               Contains("--isolate cannot be used with --against=mesh:SHAPE"));
  for (const std::string shape : {"4", "[]x", "[0,1]", "[1,[2]]"})
    REQUIRE_THAT(with_code(2, replay("--against=mesh:" + shape)).errors,
                 Contains("expected a value of mesh.ici_mesh_shape, such as mesh:[1,4,1]"));
  REQUIRE_THAT(with_code(2, replay("--against=mesh:[9000000000,9000000000]")).errors,
               Contains("--devices=1048576"));
  const ReplayedRun standard;
  standard.require_refused("--step=3 --against=mesh:[1,2,1]",
                           "only with task.train.numerics=mesh_invariant are the bits the same");
}

TEST_CASE("a step on the virtual GPU is compared launch by launch with the CPU") {
  const fs::path lib = fs::path(TESSERA_BINARY_DIR) / "lib";
  if (!fs::exists(lib / "virtual_gpu/libcuda.so.1") || !fs::exists(lib / "tessera/devices/cuda.so"))
    return skip_test("the CUDA device is not built");
  const ReplayedRun run;
  const std::string driver =
      fmt::format("TESSERA_CUDA_DRIVER='{}/virtual_gpu/libcuda.so.1'", lib.string());
  const Outcome live =
      successful(run.replay("--step=3 --against=device:cuda --isolate --tolerance=1e-5", driver));
  REQUIRE_THAT(live.out, Contains("there: cuda: GPU 0, Virtual GPU") &&
                             Contains("wrote the same within a tolerance of 1e-05"));

  REQUIRE(run.replay("--step=3 --device=cuda --record=gpu.rec", driver).exit_code == 0);
  run.require_refused("--step=3 --against=gpu.rec", "unless it is recorded with --kernels_of=cpu");
  REQUIRE(
      run.replay("--step=3 --device=cuda --kernels_of=cpu --record=gpu.rec", driver).exit_code ==
      0);
  const Outcome recorded = with_code(1, run.replay("--step=3 --against=gpu.rec"));
  REQUIRE_THAT(recorded.out, Contains("its hash differs; the other side has no values"));
}

}  // namespace
}  // namespace tessera
