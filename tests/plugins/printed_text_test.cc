// SPDX-License-Identifier: Apache-2.0
// Tests the output of programs: commands can be copied with any names in them, and no byte of a
// flag or file controls the terminal.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

std::string program(const std::string& name) {
  return fmt::format("'{}/bin/{}' ", TESSERA_BINARY_DIR, name);
}

TEST_CASE("printed commands have every name as one word, and run nothing else") {
  const TemporaryDirectory folder;
  const std::string hostile = "my data;id $(touch PWN)'`touch PWN`\"\x1b[31m*.h5";
  const std::string word = "$'my data;id $(touch PWN)\\'`touch PWN`\"\\x1b[31m*.h5'";
  const Outcome printed = with_code(
      2, bash(folder.path(), program("runexp") + "--exp=c4.Spmd1B --set flat_tokens_path=" + word +
                                 " --set tokenizer=" + word + " --job_log_dir=" + word));
  std::istringstream lines(printed.errors);
  std::string script;  // Prints the words of each command instead of running it.
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  ")) script += "printf '%s\\n' " + line.substr(2) + "\n";
  const Outcome words = bash(folder.path(), script);
  INFO(printed.errors);
  for (const std::string& expected :
       {"--output=" + hostile, "--tokenizer=" + hostile, "flat_tokens_path=" + hostile,
        "tokenizer=" + hostile, "--job_log_dir=" + hostile})
    REQUIRE_THAT(words.out, Contains("\n" + expected + "\n"));
  REQUIRE_FALSE(std::filesystem::exists(folder / "PWN"));
}

TEST_CASE("no output has control characters from flags, files or names") {
  const TextFolder folder;
  const std::string name = "a\x1b[2J\x07\xc2\x9b\xff";
  std::filesystem::create_directories(folder / name);
  write_bytes(folder / name / "hparams.toml", "# a.B\n");
  write_bytes(folder / name / "text.jsonl", "{\"" + name.substr(0, 5) + "\": 1}\n");
  const std::string word = "$'a\\x1b[2J\\x07\\xc2\\x9b\\xff'";
  const std::string runexp = program("runexp"), flat_tokens = program("flat_tokens");
  for (const std::string& command :
       {runexp + "--exp=" + word, runexp + word, runexp + "--" + word, runexp + "--set " + word,
        runexp + "--exp=CharLm --set " + word + "=1",
        runexp + "--exp=CharLm --dry_run --set input.path=" + word, runexp + "--report=" + word,
        runexp + "--report=" + word + "/none",
        runexp + "--exp=CharLm --diff=" + word + " --set input.path=" + word,
        tiny_command(1) + " --job_log_dir=" + word + "/run",
        tiny_command(1) + " --mode=eval --job_log_dir=" + word + "/run", flat_tokens + word,
        flat_tokens + "inspect " + word,
        flat_tokens + "build --output=" + word + "/o.h5 " + word + "/text.jsonl",
        flat_tokens + "build --output=" + word + "/o.h5 text.txt",
        flat_tokens + "inspect " + word + "/o.h5"}) {
    const Outcome outcome = bash(folder.path(), command);
    INFO(command);
    const std::string text = outcome.out + outcome.errors;
    REQUIRE_FALSE(text.empty());
    REQUIRE(std::ranges::none_of(text, [](char c) {
      return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == '\x7f';
    }));
    REQUIRE_THAT(text, !Contains("\xc2\x9b") && !Contains("\xff"));
  }
}

TEST_CASE("a name that is not UTF-8 is refused before step 0, where it would be stored") {
  const TextFolder folder;
  std::filesystem::copy_file(folder / "text.txt", folder / "text\xff.txt");
  const std::string run = tiny_command(1);
  const Outcome refused = with_code(
      2, bash(folder.path(), run + " --set input.path=$'text\\xff.txt' --set num_train_steps=2"));
  REQUIRE_THAT(refused.errors, Contains("cannot store this line, which is not valid UTF-8: ") &&
                                   Contains("text\\xff.txt") && Contains("rename the file"));
  REQUIRE_FALSE(std::filesystem::exists(folder / "run/hparams.toml"));
  REQUIRE(bash(folder.path(), run).exit_code == 0);  // The advice helps.
}

}  // namespace
}  // namespace tessera
