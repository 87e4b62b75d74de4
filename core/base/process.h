// SPDX-License-Identifier: Apache-2.0
// What a program asks of the operating system: its standard streams, its threads and the programs
// that it starts.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera {

// Call first in main. Afterwards, writing to a pipe without a reader or beyond a file size limit is
// an error of the write (EPIPE, EFBIG) instead of a signal (SIGPIPE, SIGXFSZ). A closed standard
// descriptor is opened on /dev/null, so that no file opened later gets its number.
void prepare_standard_streams();

// Flushes std::cout and stdout. Returns why output was lost, or "" if none was. A reader that
// closed the pipe (`| head -1`) is not a loss.
std::string flush_standard_output();

// Starts a thread; `work` must not throw. Error if the system refuses another thread (limits on
// processes, containers or memory). The caller must then join the threads it started before.
std::thread start_thread(std::function<void()> work);

// For a thread that mostly waits and should run at once when it is woken, even if others compute on
// every processor: short time slices, for which the scheduler runs it sooner, and exact timers. It
// gets no more than its share of the processors. Does what the kernel allows and never fails.
void make_thread_prompt();

// Whether PATH has an executable file of this name.
bool program_exists(std::string_view name);

// A child process in its own process group. Its standard streams are /dev/null.
class ChildProcess {
 public:
  // Starts arguments[0], looked up in PATH, without a shell. Error if that fails.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();  // Kills the process group unless wait() has returned the exit status.
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The exit status; -1 if a signal ended the process. nullopt if it still runs at `deadline`.
  std::optional<int> wait(std::chrono::steady_clock::time_point deadline);

 private:
  int pid_ = 0;
  std::optional<int> status_;
};

}  // namespace tessera
