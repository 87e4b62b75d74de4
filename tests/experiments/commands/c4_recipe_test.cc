// SPDX-License-Identifier: Apache-2.0
// Tests the way from no data to a training run with the commands that c4 experiments print. They
// are those of docs/recipes.md, run here on a substitute for C4 and with a small model.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/compress.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

const fs::path kRoot = TESSERA_SOURCE_DIR;
const fs::path kPrograms = fs::path(TESSERA_BINARY_DIR) / "bin";

// A user's folder, with the programs and nothing else. First in PATH are a `pip` that does nothing
// and an `hf` that copies the requested files of the substitute.
class Workplace {
 public:
  Workplace() {
    for (const char* program : {"runexp", "flat_tokens"}) {
      fs::create_directories(here());
      fs::create_symlink(kPrograms / program, here() / program);
    }
    write_program("pip", "");
    write_program(
        "hf",
        fmt::format(
            R"([ "$1 $2 $3 $4 $5" = "download allenai/c4 --repo-type dataset --local-dir" ] || exit 9
mkdir -p "$6"; to=$(cd "$6" && pwd); [ "$7" = --include ] || exit 9; shift 7
cd '{}' || exit 9
for pattern in "$@"; do cp --parents $pattern "$to" || exit 9; done
)",
            (directory_ / "c4").string()));
    write_stand_in();
  }

  fs::path here() const { return directory_ / "here"; }

  Ended run(const std::string& command) const {
    const std::string log = (directory_ / "log").string();
    const std::string line =
        fmt::format("cd '{}' && export PATH='{}':\"$PATH\" && {{ {}; }} >'{}' 2>&1 </dev/null",
                    here().string(), (directory_ / "bin").string(), command, log);
    const int status = std::system(line.c_str());
    REQUIRE(WIFEXITED(status));
    return {WEXITSTATUS(status), read_bytes(log)};
  }

 private:
  void write_program(const std::string& name, const std::string& script) {
    const fs::path path = directory_ / ("bin/" + name);
    write_bytes(path, "#!/bin/bash\n" + script);
    fs::permissions(path, fs::perms::owner_all);
  }

  // Paragraphs of our documentation in C4's format: two files that the commands fetch, one that
  // they do not, and one of the validation split.
  void write_stand_in() {
    std::vector<std::string> names = {"train.00000-of-01024", "train.00001-of-01024",
                                      "train.00017-of-01024", "validation.00000-of-00008"};
    std::vector<std::string> lines(names.size());
    size_t number = 0;
    for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
      if (!entry.is_regular_file()) continue;
      std::istringstream text(read_file(entry.path()));
      for (std::string line; std::getline(text, line);) {
        if (line.size() < 40) continue;
        std::string escaped;
        for (const char c : line)
          escaped += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
        std::erase(escaped, '\t');
        lines[number++ % names.size()] += fmt::format(
            "{{\"text\": \"{}\", \"url\": \"https://example.com/{}\", \"timestamp\": "
            "\"2019-04-25T12:57:54Z\"}}\n",
            escaped, number);
      }
    }
    REQUIRE(number > 500);
    for (size_t i = 0; i < names.size(); ++i)
      write_bytes(directory_ / ("c4/en/c4-" + names[i] + ".json.gz"), gzip(lines[i]));
  }

  TemporaryDirectory directory_;
};

// The commands of a message are the lines that are indented.
std::vector<std::string> commands_of(const std::string& message) {
  std::vector<std::string> commands;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  ")) commands.push_back(line.substr(2));
  return commands;
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

const std::string kSmall =
    "./runexp --exp=c4.Spmd1BSmoke --set data=flat_tokens --set vocab_size=512 --set "
    "tokenizer=data/c4_en.512.model --set num_train_steps=20";

TEST_CASE("c4.Spmd1B without data prints the commands of docs/recipes.md") {
  const Workplace workplace;
  const auto got = with_code(2, workplace.run("./runexp --exp=c4.Spmd1B"));
  REQUIRE_THAT(got.output, Catch::StartsWith("runexp: c4.Spmd1B: ") &&
                               Contains((workplace.here() / "data/c4_en.h5").string() +
                                        " does not exist (flat_tokens_path)"));
  const std::vector<std::string> commands = commands_of(got.output);
  REQUIRE(commands.size() == 5);
  REQUIRE(commands.back() == "./runexp --exp=c4.Spmd1B --set ici_mesh_shape=[1,1,1]");
  // Pax's rows need a file without end ids.
  REQUIRE_THAT(with_code(2, workplace.run("./runexp --exp=c4.Spmd1B --set pax_rows=true")).output,
               Contains(" --end_of_document=none 'data/en/c4-train.*.json.gz'"));
  std::string block = "```bash\n";
  for (const std::string& command : commands) block += command + "\n";
  REQUIRE_THAT(read_file(kRoot / "docs/recipes.md"), Contains(block + "```\n"));
  // A mesh for the available devices; empty if the default fits.
  const std::string four = workplace.run("./runexp --exp=c4.Spmd1B --devices=4").output;
  REQUIRE(commands_of(four).back() == "./runexp --exp=c4.Spmd1B --devices=4");
  REQUIRE_FALSE(fs::exists(workplace.here() / "runs"));
  const std::string other =
      workplace.run("./runexp --exp=c4.Spmd1B --devices=8 --set ici_mesh_shape=[1,2,2]").output;
  REQUIRE(commands_of(other).back() ==
          "./runexp --exp=c4.Spmd1B --set ici_mesh_shape=[1,8,1] --devices=8");
}

TEST_CASE("the commands printed without data lead to a run, on a substitute for C4") {
  const Workplace workplace;
  const auto message = with_code(2, workplace.run(kSmall));
  const std::vector<std::string> commands = commands_of(message.output);
  // They are those of the large model, except for what was set.
  const std::vector<std::string> large =
      commands_of(workplace.run("./runexp --exp=c4.Spmd1B").output);
  REQUIRE(commands.size() == large.size());
  for (size_t i = 0; i + 1 < large.size(); ++i)
    REQUIRE(commands[i] == replaced(large[i], "32000", "512"));
  REQUIRE(commands.back() == kSmall);
  for (const std::string& command : commands) successful(workplace.run(command));
  REQUIRE_FALSE(fs::exists(workplace.here() / "data/en/c4-train.00017-of-01024.json.gz"));
  const std::vector<std::string> losses =
      values_of(workplace.here() / "runs/c4.Spmd1BSmoke", "loss");
  REQUIRE(!losses.empty());
  REQUIRE(std::stod(losses.back()) < std::stod(losses.front()));
  REQUIRE(!values_of(workplace.here() / "runs/c4.Spmd1BSmoke", "eval/validation/log_pplx").empty());
  // The fetched shards can be read directly, too.
  successful(
      workplace.run(replaced(kSmall, "flat_tokens", "shards") + " --job_log_dir=runs/shards"));
  // A run that is repeated without its data: --config has no knobs, so the mesh is a field.
  fs::remove(workplace.here() / "data/c4_en.h5");
  const auto repeated = with_code(
      2,
      workplace.run(
          "./runexp --config=runs/c4.Spmd1BSmoke --devices=2 --set mesh.ici_mesh_shape=[1,4,1]"));
  REQUIRE(commands_of(repeated.output).back() ==
          "./runexp --config=runs/c4.Spmd1BSmoke --set mesh.ici_mesh_shape=[1,2,1] --devices=2");
}

TEST_CASE("commands whose output exists are not printed, and other paths are respected") {
  const Workplace workplace;
  const auto commands = [&](const std::string& sets) {
    const auto got =
        with_code(2, workplace.run("./runexp --exp=c4.Spmd1BSmoke --set data=flat_tokens" + sets));
    return commands_of(got.output);
  };
  // The byte tokenizer needs no training.
  REQUIRE(commands("").size() == 4);
  const std::vector<std::string> elsewhere =
      commands(" --set train_shards='c4/c4-train.*.gz' --set validation_shards='c4/c4-v*.gz'");
  REQUIRE(elsewhere[1].find("--local-dir c4 ") != std::string::npos);
  REQUIRE(elsewhere[2] == "mv c4/en/*.json.gz c4");
  REQUIRE(elsewhere[3] == "mkdir -p data");
  REQUIRE(elsewhere[4] ==
          "./flat_tokens build --output=data/c4_en.h5 --tokenizer=bytes --validation='c4/c4-v*.gz' "
          "'c4/c4-train.*.gz'");
  for (const std::string name : {"train.00000-of-01024", "validation.00000-of-00008"})
    write_bytes(workplace.here() / ("data/en/c4-" + name + ".json.gz"), gzip("{\"text\": \"a\"}"));
  REQUIRE(commands("").size() == 2);
  const auto shards = with_code(2, workplace.run("./runexp --exp=c4.Spmd1B --set data=shards"));
  REQUIRE_THAT(shards.output, Contains("data/c4_en.32000.model does not exist (tokenizer)"));
  REQUIRE(commands_of(shards.output).size() == 2);
}

}  // namespace
}  // namespace tessera
