// SPDX-License-Identifier: Apache-2.0
// The program flat_tokens: its commands, and how they read the command line.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/flags/flags.h"
#include "inputs/flat_tokens/flat_tokens_file.h"

namespace tessera {

// Wrong usage, exit code 2; other Errors are exit code 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

// The output streams of commands.
struct Printed {
  std::ostream& out;    // The result.
  std::ostream& notes;  // Progress and warnings.
};

// A command: a struct of flags (core/flags/flags.h) with kName, kUsage and kAbout for --help, and
// run(paths, printed), where `paths` are the words that are no flags.
struct FlatTokensCommand {
  std::string name;
  std::string usage, about;
  std::string flags_help;
  std::function<void(const std::vector<std::string>& words, const Printed& printed)> run;
};

// Return the commands, each from its own file.
FlatTokensCommand build_command();
FlatTokensCommand inspect_command();
FlatTokensCommand import_command();
FlatTokensCommand export_command();
FlatTokensCommand train_command();

using Paths = std::vector<std::filesystem::path>;

// Sets the flags that are among the words and returns the others. UsageError for a flag that is
// unknown, repeated or without a value, and for an invalid one.
Paths read_words(const std::vector<Flag>& flags, const std::vector<std::string>& words);

template <typename Struct>
FlatTokensCommand flat_tokens_command() {
  Struct usual;
  return {.name = std::string(Struct::kName),
          .usage = std::string(Struct::kUsage),
          .about = std::string(Struct::kAbout),
          .flags_help = flags_help(flags_of(usual)),
          .run = [](const std::vector<std::string>& words, const Printed& printed) {
            Struct command;
            const Paths paths = read_words(flags_of(command), words);
            command.run(paths, printed);
          }};
}

// Throws a UsageError if the output is one of these files, by any path or link, --overwrite or not.
void check_not_an_input(const std::filesystem::path& output,
                        const std::vector<std::filesystem::path>& inputs);

// Throws a UsageError if the output exists and is not a token file of this tokenizer.
void check_output(const std::filesystem::path& output, const TokenizerIdentity& identity);

// While it exists, stop signals (kStopSignals) set a flag; a second one ends the process.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption& operator=(Interruption&&) = delete;  // Neither copied nor moved.

  const std::atomic<bool>* flag() const;
};

// Runs the program, for tests too. `arguments` without the program's name. Returns the exit code: 0
// success, 1 bad data or a failed write, 2 bad usage.
int run_flat_tokens(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& errors);

}  // namespace tessera
