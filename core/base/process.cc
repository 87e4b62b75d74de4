// SPDX-License-Identifier: Apache-2.0
#include "core/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <mutex>
#include <new>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/terminal.h"

extern char** environ;

namespace tessera {
namespace {

// Opens a closed standard descriptor on /dev/null. `flags` are those of the opposite direction, so
// that using the descriptor is an error.
void occupy_descriptor(int descriptor, int flags) {
  if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) return;
  const int opened = ::open("/dev/null", flags);
  if (opened < 0 || opened == descriptor) return;
  ::dup2(opened, descriptor);
  ::close(opened);
}

// Returns whether the other end of a pipe or socket is closed.
bool reader_has_left(int descriptor) {
  pollfd state{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP)) != 0;
}

// Returns the number of threads of this process; 0 if unknown.
int64_t running_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::strtoll(line.c_str() + 8, nullptr, 10);
  return 0;
}

// Raises the limit on open files, for the descriptors of a run: one per file read and per
// connection.
void raise_open_files() {
  constexpr rlim_t kEnough = 1 << 20;  // Programs that close all descriptors would take long.
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void run_to_the_end(const std::function<void()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    std::fputs("a thread of this program is out of memory\n", stderr);
  } catch (const std::exception& error) {
    print_error("a thread of this program failed: " + error_text(error));
  } catch (...) {
    print_error("a thread of this program failed: an exception of unknown kind");
  }
  std::_Exit(1);
}

constexpr uint64_t kTimeSliceNanoseconds = 100000;      // The minimum of Linux.
constexpr unsigned long kTimerSlackNanoseconds = 1000;  // NOLINT: prctl's type.

// The kernel's struct sched_attr in its first version, which glibc does not declare.
struct SchedulerSetting {
  uint32_t size = sizeof(SchedulerSetting);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // The time slice, since Linux 6.12.
  uint64_t deadline = 0;
  uint64_t period = 0;
};

// Removes folders of PATH that are relative or empty: they mean the current directory, in which
// anybody may have left a program.
void keep_absolute_path() {
  const char* const path = std::getenv("PATH");
  if (path == nullptr) return;
  std::istringstream folders(path);
  std::string kept;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (folder.starts_with('/')) kept += (kept.empty() ? "" : ":") + folder;
  if (kept.empty()) {
    ::unsetenv("PATH");  // Then programs are looked for in /bin and /usr/bin.
  } else {
    ::setenv("PATH", kept.c_str(), 1);
  }
}

template <typename Thread, typename Work>
Thread started(Work work) {
  try {
    return Thread(std::move(work));
  } catch (const std::system_error& error) {
    fail(
        "the system refuses to start another thread ({}); this process has {}. Use fewer with "
        "--threads=N or --devices=N, or raise the limit (ulimit -u, ulimit -v, or the container's "
        "pids.max)",
        error.code().message(), running_threads());
  }
}

}  // namespace

int64_t address_space_left() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<int64_t>::max();
  char text[32] = "";  // "12345 …": pages. Not a stream, which allocates.
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0 || ::read(file, text, sizeof(text) - 1) < 0) text[0] = '\0';
  if (file >= 0) ::close(file);
  const int64_t used = std::strtoll(text, nullptr, 10) * ::sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

// Uses only the C library: nothing else is initialised, and allocations could fail.
void require_address_space(int argc, char** argv, char**) {
  const std::string_view name = argc > 0 ? argv[0] : "";
  const int64_t left = address_space_left();
  if (left >= kLeastAddressSpace) return;
  char text[256];
  const int size = std::snprintf(
      text, sizeof(text),
      "%s: the limit on address space (ulimit -v) leaves %d MiB to the program, expected at least "
      "%d; raise it, or remove it with ulimit -v unlimited\n",
      name.data() + std::min(name.rfind('/') + 1, name.size()), static_cast<int>(left >> 20),
      static_cast<int>(kLeastAddressSpace >> 20));
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, text, static_cast<size_t>(std::max(size, 0)));
  ::_exit(1);
}

void prepare_program() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  occupy_descriptor(STDIN_FILENO, O_WRONLY);
  occupy_descriptor(STDOUT_FILENO, O_RDONLY);
  occupy_descriptor(STDERR_FILENO, O_RDONLY);
  raise_open_files();
  escape_standard_streams();
  keep_absolute_path();
}

std::string flush_standard_output() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0;
  if (flushed || errno == EPIPE) return "";
  const std::string reason = errno == 0 ? "a write failed" : std::strerror(errno);
  return reader_has_left(STDOUT_FILENO) ? "" : reason;
}

std::thread start_thread(std::function<void()> work) {
  return started<std::thread>([work = std::move(work)] { run_to_the_end(work); });
}

std::jthread start_thread(std::function<void(std::stop_token stop)> work) {
  return started<std::jthread>([work = std::move(work)](const std::stop_token& stop) {
    run_to_the_end([&] { work(stop); });
  });
}

bool stops_within(const std::stop_token& stop, std::chrono::nanoseconds time) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
  return stop.stop_requested();
}

std::vector<std::thread> start_threads(int64_t count, const std::function<void()>& work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(std::max<int64_t>(count, 0)));
  try {
    while (std::ssize(threads) < count) threads.push_back(start_thread(work));
  } catch (const Error&) {
    if (threads.empty()) throw;
  }
  return threads;
}

void parallel_for(int64_t count, int64_t threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
  };
  std::vector<std::thread> helpers;
  try {
    helpers = start_threads(std::min(count, threads) - 1, run);
  } catch (const Error&) {  // This thread does all of the work.
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

void make_thread_prompt() {
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds);
  const int policy = ::sched_getscheduler(0);
  if (policy == SCHED_FIFO || policy == SCHED_RR) {  // Set when the program was started (chrt).
    sched_param parameters{};
    if (::sched_getparam(0, &parameters) != 0) return;
    ++parameters.sched_priority;
    ::sched_setscheduler(0, policy, &parameters);
    return;
  }
  if (policy != SCHED_OTHER) return;
  SchedulerSetting setting;
  setting.nice = ::getpriority(PRIO_PROCESS, 0);
  setting.runtime = kTimeSliceNanoseconds;
  ::syscall(SYS_sched_setattr, 0, &setting, 0);
}

int usable_processors() {
  static const int processors = [] {
    cpu_set_t set;
    const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
    const int count =
        known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
    return std::max(1, count);
  }();
  return processors;
}

bool program_exists(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string file = fmt::format("{}/{}", rest.substr(0, end), name);
    std::error_code ignored;
    if (file.starts_with('/') && end > 0 && std::filesystem::is_regular_file(file, ignored) &&
        ::access(file.c_str(), X_OK) == 0)
      return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, int output, int input) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (const int given = descriptor == STDIN_FILENO ? input : output; given >= 0)
      posix_spawn_file_actions_adddup2(&files, given, descriptor);
    else
      posix_spawn_file_actions_addopen(&files, descriptor, "/dev/null", O_RDWR, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error =
      ::posix_spawnp(&pid_, pointers[0], &files, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail("cannot start the program {}: {}", arguments[0], std::strerror(error));
}

ChildProcess::~ChildProcess() {
  if (status_ || is_released_) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::ask_to_stop() const {
  if (!status_) ::kill(pid_, SIGTERM);
}

std::optional<int> ChildProcess::wait(std::chrono::steady_clock::time_point deadline) {
  while (!status_) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    } else if (ended < 0 && errno != EINTR) {
      status_ = -1;  // Another wait has reaped it.
    } else if (std::chrono::steady_clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return status_;
}

}  // namespace tessera
