// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/compiler.h"

namespace tessera {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

constexpr const char* kOutput = ".output";
constexpr const char* kErrors = ".errors";

void limit(int resource, int64_t most) {
  const rlimit limits{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limits);
}

// In the child, where only async-signal-safe calls are allowed after fork.
[[noreturn]] void become(char** words, const char* directory, const RunLimits& limits) {
  if (::chdir(directory) != 0) ::_exit(126);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(::open(kOutput, O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
  ::dup2(::open(kErrors, O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, limits.file_bytes);
  if (!kSanitized) limit(RLIMIT_AS, limits.memory_bytes);
  ::execv(words[0], words);
  ::_exit(127);
}

}  // namespace

Child::Child(const std::string& program, const std::vector<std::string>& arguments,
             std::filesystem::path output)
    : output_(std::move(output)) {
  const std::string path = (std::filesystem::path(TESSERA_BINARY_DIR) / "bin" / program).string();
  CHECK(std::filesystem::exists(path), "{} is not built", path);
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) {
    const int file = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
}

Child::~Child() {
  if (ended_) return;
  send(SIGKILL);
  wait();
}

void Child::note(int status) {
  ended_ = true;
  code_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int Child::wait() {
  int status = 0;
  if (!ended_ && ::waitpid(pid_, &status, 0) == pid_) note(status);
  return code_;
}

bool Child::running() {
  int status = 0;
  if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) note(status);
  return !ended_;
}

void Child::send(int signal) {
  if (!ended_) ::kill(pid_, signal);
}

std::string Child::output() const { return read_file(output_); }

Ended run_program(const std::filesystem::path& folder, const std::string& program,
                  std::vector<std::string> arguments, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  Child child(program, arguments, folder / "output.txt");
  const int code = child.wait();
  return {code, child.output()};
}

Ended with_code(int code, Ended ended, std::source_location where) {
  INFO(where.file_name() << ":" << where.line() << ": " << ended.output);
  REQUIRE(ended.code == code);
  return ended;
}

Outcome with_code(int code, Outcome outcome, std::source_location where) {
  INFO(where.file_name() << ":" << where.line() << ": " << outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == code);
  return outcome;
}

Outcome shell(const std::filesystem::path& folder, const std::string& command,
              std::chrono::seconds limit) {
  using Clock = std::chrono::steady_clock;
  const TemporaryDirectory scratch;
  const Clock::time_point begin = Clock::now();
  const std::string whole = fmt::format("cd '{}' && timeout -k 5 {} {} >'{}' 2>'{}' </dev/null",
                                        folder.string(), limit.count(), command,
                                        (scratch / "out").string(), (scratch / "errors").string());
  const int status = std::system(whole.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  constexpr int kTimedOut = 124;
  return {.exit_code = code == kTimedOut ? -1 : code,
          .out = read_bytes(scratch / "out"),
          .errors = read_bytes(scratch / "errors"),
          .seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
}

Outcome bash(const std::filesystem::path& folder, const std::string& script,
             std::chrono::seconds limit) {
  const TemporaryDirectory scratch;
  write_bytes(scratch / "script", script + "\n");
  return shell(folder, fmt::format("bash '{}'", (scratch / "script").string()), limit);
}

Background::Background(const std::filesystem::path& folder, const std::string& command)
    : folder_(folder) {
  std::filesystem::remove(folder / "out");
  std::filesystem::remove(folder / "errors");
  const std::string line =
      fmt::format("cd '{}' && exec {} >out 2>errors </dev/null", folder.string(), command);
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  ::setpgid(pid_, pid_);  // Set in parent and child, so no race.
  if (pid_ > 0) return;
  ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

Background::~Background() {
  if (ended_) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string Background::output() const {
  return read_bytes(folder_ / "out") + read_bytes(folder_ / "errors");
}

std::optional<int> Background::wait(std::chrono::seconds time) {
  int status = 0;
  if (!comes_true([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, time))
    return std::nullopt;
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool comes_true(const std::function<bool()>& condition, std::chrono::seconds time) {
  for (const auto end = std::chrono::steady_clock::now() + time;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(kPoll))
    if (condition()) return true;
  return false;
}

RunResult run_limited(const std::string& program, const std::vector<std::string>& arguments,
                      const std::filesystem::path& directory, const RunLimits& limits) {
  std::vector<std::string> words = {
      (std::filesystem::path(TESSERA_BINARY_DIR) / "bin" / program).string()};
  CHECK(std::filesystem::exists(words[0]), "{} is not built", words[0]);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid == 0) become(argv.data(), directory.c_str(), limits);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limits.seconds);
  RunResult result;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      result.timed_out = true;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.exit_code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  result.output = read_bytes(directory / kOutput);
  result.errors = read_bytes(directory / kErrors);
  return result;
}

}  // namespace tessera
