// SPDX-License-Identifier: Apache-2.0
// Programs and shell commands that a test starts: Child is a program of the build that the test can
// wait for, signal or kill, run_program one that it waits for, and run_limited one with limits on
// time and memory; shell and bash run commands; Background is a launcher with its processes.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace tessera {

class Child {
 public:
  // Starts bin/<program> of this build; its output goes to the file `output`.
  Child(const std::string& program, const std::vector<std::string>& arguments,
        std::filesystem::path output);
  ~Child();  // Kills it if it still runs.
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Waits for the end. Returns the exit code, or -signal if a signal ended it.
  int wait();
  bool running();
  void send(int signal);
  std::string output() const;  // The output until now.

 private:
  void note(int status);
  int pid_ = -1;
  bool ended_ = false;
  int code_ = 0;
  std::filesystem::path output_;
};

// A program that has ended, with its standard output and errors.
struct Ended {
  int code = -1;
  std::string output;
};

// Runs bin/<program>; its output also goes to the file output.txt in `folder`. Each of `settings`
// follows a --set.
Ended run_program(const std::filesystem::path& folder, const std::string& program,
                  std::vector<std::string> arguments,
                  const std::vector<std::string>& settings = {});

// A shell command that has ended.
struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string errors;
  double seconds = 0;
};

// REQUIRE that it ended with this code, and show its output if not.
Ended with_code(int code, Ended ended,
                std::source_location where = std::source_location::current());
Outcome with_code(int code, Outcome outcome,
                  std::source_location where = std::source_location::current());
// REQUIREs success.
template <typename Ending>
Ending successful(Ending ending, std::source_location where = std::source_location::current()) {
  return with_code(0, std::move(ending), where);
}

// Runs a command of one program in `folder` with empty standard input. Killed after `limit`; the
// exit code is then -1.
Outcome shell(const std::filesystem::path& folder, const std::string& command,
              std::chrono::seconds limit = std::chrono::seconds(60));

// Runs a bash script, which is stored outside `folder`, in the same way.
Outcome bash(const std::filesystem::path& folder, const std::string& script,
             std::chrono::seconds limit = std::chrono::seconds(60));

// A shell command that runs in the background of a test: a launcher and its processes, which the
// test may signal or kill. The destructor ends the command and all processes that it started.
class Background {
 public:
  // Runs in `folder`. Its standard output and errors go to files there.
  Background(const std::filesystem::path& folder, const std::string& command);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  int pid() const { return pid_; }
  std::string output() const;  // Standard output and errors so far.
  // The exit code, or -signal; nullopt if it does not end within `time`.
  std::optional<int> wait(std::chrono::seconds time);

 private:
  std::filesystem::path folder_;
  int pid_ = -1;
  bool ended_ = false;
};

// Whether the condition becomes true within `time`.
bool comes_true(const std::function<bool()>& condition,
                std::chrono::seconds time = std::chrono::seconds(60));

// A folder with text.txt, for runs that take at most a second.
class TextFolder : public TemporaryDirectory {
 public:
  TextFolder() { write_small_text(path()); }
};

// Limits of a program that a test runs with hostile arguments.
struct RunLimits {
  double seconds = 60;                       // Wall time after which the program is killed.
  int64_t memory_bytes = int64_t{12} << 30;  // Address space; unlimited under a sanitizer.
  int64_t file_bytes = int64_t{64} << 20;    // Size of one file.
};

struct RunResult {
  int exit_code = 0;       // -signal if a signal ended it.
  bool timed_out = false;  // It was killed after `seconds`.
  std::string output;
  std::string errors;
};

// Runs bin/<program> in `directory` with empty standard input.
RunResult run_limited(const std::string& program, const std::vector<std::string>& arguments,
                      const std::filesystem::path& directory, const RunLimits& limits = {});

}  // namespace tessera
