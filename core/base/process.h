// SPDX-License-Identifier: Apache-2.0
// Uses of the operating system by a program: its standard streams, its threads and the programs
// that it starts.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera {

// Signals that end a process by default without a bug in it: requests to stop, and limits.
inline constexpr int kStopSignals[] = {SIGTERM, SIGINT,  SIGUSR1,   SIGUSR2, SIGHUP,
                                       SIGXCPU, SIGALRM, SIGVTALRM, SIGPROF, SIGPWR};

// Call first in main. Afterwards, writing to a pipe without a reader or beyond a file size limit is
// an error of the write (EPIPE, EFBIG) instead of a signal (SIGPIPE, SIGXFSZ). A closed standard
// descriptor is opened on /dev/null, so that no file opened later gets its number. The limit on
// open files is raised as far as the system allows, and standard output and error escape characters
// that would control a terminal. PATH keeps only its absolute folders.
void prepare_program();

// Returns the bytes left below the limit on address space (ulimit -v); max int64_t without a limit.
int64_t address_space_left();
// Least address space for a program besides memory whose allocation it checks: with less, libraries
// crash that do not check their allocations.
inline constexpr int64_t kLeastAddressSpace = int64_t{64} << 20;

// Ends a program that has less, with a message and exit code 1. Called from the section
// .preinit_array of the program, because libraries may crash while they are initialised.
void require_address_space(int, char**, char**);
using BeforeLibraries = void (*)(int, char**, char**);

// Flushes std::cout and stdout. Returns why output was lost, or "" if none was. A reader that
// closed the pipe (`| head -1`) is not a loss.
std::string flush_standard_output();

// Starts a thread. Error if the system refuses another thread (limits on processes, containers or
// memory); the caller must then join the threads it started before. (A std::thread that is dropped
// ends the program: reserve a vector for threads before they are started.) `work` catches the
// errors that its owner can report. An exception that escapes, when even that fails, is reported on
// standard error and ends the program with exit code 1, because threads may wait for this one.
std::thread start_thread(std::function<void()> work);
// A thread that ends with its owner: `work` returns soon after a stop is requested.
std::jthread start_thread(std::function<void(std::stop_token stop)> work);
// In such a thread: waits for this time, or until a stop is requested, and returns whether it is.
bool stops_within(const std::stop_token& stop, std::chrono::nanoseconds time);

// Starts threads that call `work`: `count`, or fewer if the system refuses more. Error if it
// refuses the first.
std::vector<std::thread> start_threads(int64_t count, const std::function<void()>& work);

// Calls work(i) once for each i in [0, count), on the calling thread and at most `threads` - 1
// others; fewer if the system refuses them. Throws the first error when all have ended.
void parallel_for(int64_t count, int64_t threads, const std::function<void(int64_t)>& work);

// Makes a thread that mostly waits run at once when it is woken, even if others compute on every
// processor: short time slices, for which the scheduler runs it sooner, and exact timers. It gets
// no more than its share of the processors. Uses what the kernel allows and never fails.
void make_thread_prompt();

// Returns the number of processors that this process may use.
int usable_processors();

// Returns whether an absolute folder of PATH has an executable file of this name.
bool program_exists(std::string_view name);

// A child process in its own process group.
class ChildProcess {
 public:
  // Starts arguments[0], looked up in PATH, without a shell. Standard output and error go to the
  // descriptor `output`, standard input comes from `input`; -1: /dev/null. Error if that fails.
  explicit ChildProcess(const std::vector<std::string>& arguments, int output = -1, int input = -1);
  ~ChildProcess();  // Kills the process group unless it has ended (wait) or was released.
  ChildProcess& operator=(ChildProcess&&) = delete;  // Neither copied nor moved.

  // Lets the program continue when this object is destroyed.
  void release() { is_released_ = true; }
  // Returns the exit status; -1 if a signal ended the process. nullopt if it still runs at
  // `deadline`.
  std::optional<int> wait(std::chrono::steady_clock::time_point deadline);
  int signal() const { return signal_; }  // Signal that ended the process; 0: none.
  void ask_to_stop() const;               // Sends SIGTERM.

 private:
  int pid_ = 0;
  int signal_ = 0;
  bool is_released_ = false;
  std::optional<int> status_;
};

}  // namespace tessera
