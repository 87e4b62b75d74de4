// SPDX-License-Identifier: Apache-2.0
// Dry runs and read-only commands write nothing: the file tree and all modification times are the
// same before and after.
#include <map>

#include "core/base/error.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Each path below a folder, with its modification time and its content or link target.
std::map<std::string, std::string> tree_of(const fs::path& folder) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string text =
        fmt::format("{} ", fs::is_symlink(entry.path())
                               ? 0
                               : fs::last_write_time(entry.path()).time_since_epoch().count());
    if (entry.is_symlink()) {
      text += "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      text += read_bytes(entry.path());
    }
    tree[entry.path().lexically_relative(folder).string()] = text;
  }
  return tree;
}

class Workplace {
 public:
  Workplace() {
    write_small_text(folder_.path());
    fs::create_directory(temporary_ / "tmp");
  }

  Outcome run(const std::string& command) const {
    return shell(folder_.path(),
                 fmt::format("env TMPDIR='{}' {}", (temporary_ / "tmp").string(), command));
  }
  void require_unchanged(const std::string& command) const {
    const auto before = tree_of(folder_.path());
    successful(run(command));
    REQUIRE(tree_of(folder_.path()) == before);
    REQUIRE(fs::is_empty(temporary_ / "tmp"));  // No temporary files remain either.
  }
  const TemporaryDirectory& folder() const { return folder_; }

 private:
  TemporaryDirectory folder_, temporary_;
};

std::string program(const std::string& name) {
  return fmt::format("'{}/bin/{}' ", TESSERA_BINARY_DIR, name);
}

TEST_CASE("dry runs and read-only commands change no file, before and after a run") {
  const Workplace workplace;
  const std::string tiny = tiny_command(4);
  const auto require_all_unchanged = [&] {
    for (const std::string flags : {"--dry_run", "--dry_run --restart", "--mode=plan --dry_run",
                                    "--describe", "--diff=quickstart.SourceLm"})
      workplace.require_unchanged(tiny + " " + flags);
    workplace.require_unchanged(program("runexp") + "--list");
    workplace.require_unchanged(program("runexp") + "--help");
    workplace.require_unchanged(program("runexp") + "--version");
    workplace.require_unchanged(program("flat_tokens") + "help");
  };
  require_all_unchanged();
  REQUIRE(workplace.run(tiny).exit_code == 0);
  require_all_unchanged();
  for (const std::string flags :
       {"--mode=plan", "--mode=eval --dry_run", "--mode=decode --dry_run --prompt=the",
        "--mode=decode --prompt=the --set task.decode.max_decode_steps=2", "--diff=run",
        "--mode=replay --step=2",
        "--mode=replay --step=2 --against=cpu_level:portable --tolerance=0.1",
        "--dry_run --allow_config_change --set task.train.seed=7",
        "--dry_run --restart --set input.path=script.txt"}) {
    if (flags.find("script.txt") != std::string::npos)
      fs::copy(workplace.folder() / "text.txt", workplace.folder() / "script.txt");
    workplace.require_unchanged(tiny + " " + flags);
  }
  workplace.require_unchanged(program("flat_tokens") + "inspect run/corpus.h5");
}

TEST_CASE("dry imports and exports change no file") {
  const Workplace workplace;
  const std::string model = TESSERA_SOURCE_DIR "/tests/golden/hugging_face/llama";
  const std::string command = fmt::format(
      "{} --exp=hf.Pretrained --set path={} --job_log_dir=imported ", program("runexp"), model);
  workplace.require_unchanged(command + "--mode=import --dry_run --input=" + model);
  REQUIRE(workplace.run(command + "--mode=import --input=" + model).exit_code == 0);
  workplace.require_unchanged(command + "--mode=export --dry_run --output=out");
}

TEST_CASE("a dry run rejects what the run would reject, and takes no lock") {
  const Workplace workplace;
  const std::string tiny = tiny_command(4);
  REQUIRE(workplace.run(tiny).exit_code == 0);
  const auto before = tree_of(workplace.folder().path());
  const Outcome refused = with_code(2, workplace.run(tiny + " --dry_run --set task.train.seed=7"));
  REQUIRE_THAT(refused.errors, Catch::Contains("task.train.seed: 1234 -> 7"));
  REQUIRE(tree_of(workplace.folder().path()) == before);
  // A lock file that is a link is an error for the run but not for a dry run, and is not followed.
  fs::remove(workplace.folder() / "run/lock");
  fs::create_symlink("../text.txt", workplace.folder() / "run/lock");
  workplace.require_unchanged(tiny + " --dry_run");
  const Outcome stopped = with_code(2, workplace.run(tiny));
  REQUIRE_THAT(stopped.errors, Catch::Contains("lock is a symbolic link"));
  REQUIRE_THAT(read_bytes(workplace.folder() / "text.txt"), Catch::StartsWith("the quick"));
}

}  // namespace
}  // namespace tessera
