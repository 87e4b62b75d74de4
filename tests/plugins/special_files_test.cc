// SPDX-License-Identifier: Apache-2.0
// FIFOs, devices and cyclic links where files are expected. Opening a FIFO blocks and reading a
// device never ends, so each command must exit with an error that names the path.
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Creates a special file at a path.
struct Obstacle {
  std::string kind;
  std::function<void(const fs::path&)> make;
};

std::vector<Obstacle> obstacles() {
  return {
      {"FIFO", [](const fs::path& path) { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }},
      {"endless device", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }},
      {"loop", [](const fs::path& path) { fs::create_symlink(path.filename(), path); }},
      {"directory", [](const fs::path& path) { fs::create_directories(path); }},
  };
}

// A command that reads `path`.
struct Reader {
  std::string program;
  std::vector<std::string> arguments;
  std::string path;
};

std::vector<Reader> readers() {
  const std::string tiny = "--exp=bench.Gpt2Tiny";
  return {
      {"runexp", {"--exp=plugin.Model", "--plugin_path=plugin.so", "--describe"}, "plugin.so"},
      {"runexp", {tiny, "--diff=other.toml"}, "other.toml"},
      {"runexp", {tiny, "--mode=import", "--format=hf", "--input=hf"}, "hf/model.safetensors"},
      {"runexp", {tiny, "--job_log_dir=run", "--dry_run"}, "run/hparams.toml"},
      {"runexp", {"--exp=hf.Pretrained", "--set", "path=hf", "--mode=plan"}, "hf/config.json"},
      {"runexp", {"--exp=CharLm", "--set", "input.path=book.txt", "--dry_run"}, "book.txt"},
      {"runexp",
       {"--exp=TokenLm", "--set", "tokens=t.h5", "--set", "vocab_size=9", "--dry_run"},
       "t.h5"},
      {"runexp", {"--exp=StreamLm", "--set", "path=shard.txt", "--dry_run"}, "shard.txt"},
      {"flat_tokens", {"inspect", "t.h5"}, "t.h5"},
      {"flat_tokens", {"build", "--output=out.h5", "--tokenizer=t.model", "text"}, "t.model"},
      {"flat_tokens", {"build", "--output=out.h5", "book.txt"}, "book.txt"},
      {"flat_tokens", {"build", "--output=out.h5", "book.jsonl"}, "book.jsonl"},
  };
}

TEST_CASE("no special file hangs a command or exhausts its memory") {
  const TemporaryDirectory directory;
  int number = 0;
  for (const Reader& reader : readers())
    for (const Obstacle& obstacle : obstacles()) {
      const fs::path place = directory / fmt::format("{}", number++);
      write_bytes(place / "text", "some text\n");
      fs::create_directories((place / reader.path).parent_path());
      obstacle.make(place / reader.path);
      const RunResult result =
          run_limited(reader.program, reader.arguments, place,
                      {.seconds = 60, .memory_bytes = int64_t{4} << 30, .file_bytes = 1 << 20});
      INFO(fmt::format("{} {} with a {} as {}:\n{}\n{}", reader.program,
                       fmt::join(reader.arguments, " "), obstacle.kind, reader.path, result.output,
                       result.errors));
      if (result.timed_out || result.exit_code < 0) FAIL_CHECK("ended by a signal");
      if (result.exit_code != 1 && result.exit_code != 2) FAIL_CHECK("was taken for a file");
      if (result.errors.find(fs::path(reader.path).filename()) == std::string::npos)
        FAIL_CHECK("the path is not named");
    }
}

}  // namespace
}  // namespace tessera
