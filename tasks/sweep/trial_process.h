// SPDX-License-Identifier: Apache-2.0
// The process of one trial, whose output goes to a file. Unlike ChildProcess (core/base/process.h)
// it may be asked to stop, and is asked by the kernel if its parent dies: a trial then saves and
// ends as any run does at SIGTERM.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// How a process ended.
struct TrialEnd {
  int exit_code = 0;  // Of a process that ended by itself.
  int signal = 0;     // That killed it; 0: none.
};

class TrialProcess {
 public:
  // Starts the program arguments[0], which is a path, in its own process group: Ctrl-C on the
  // terminal does not reach it. Standard input is empty. Output is appended to the file. Error if
  // that fails.
  TrialProcess(const std::vector<std::string>& arguments, const std::filesystem::path& output,
               const std::vector<std::string>& environment = {});  // "NAME=VALUE", to be added.
  ~TrialProcess();                                                 // Kills it unless it has ended.
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  // nullopt while it runs.
  std::optional<TrialEnd> ended();
  // Sends SIGTERM.
  void ask_to_stop() const;

 private:
  int pid_ = 0;
  std::optional<TrialEnd> end_;
};

// "was killed by SIGKILL", "ended with exit code 1".
std::string end_text(const TrialEnd& end);

// At most this many last lines of a file, each of at most `columns` characters and safe to print.
// Empty if there is no file.
std::vector<std::string> last_lines(const std::filesystem::path& file, size_t lines,
                                    size_t columns = 200);

}  // namespace tessera
