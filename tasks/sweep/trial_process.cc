// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/trial_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/file.h"

namespace tessera {
namespace {

constexpr std::streamoff kBytesOfTail = 16384;  // Of the end of a file that are read.

// Pointers to the texts, and a null.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(added, [&](const std::string& one) { return one.starts_with(name); }))
      all.push_back(text);
  }
  return all;
}

// What is done between fork and exec: system calls only, since other threads may hold locks.
struct Start {
  char** arguments;
  char** environment;
  int input, output;
  pid_t parent;
  int report;  // Gets the error number if the program cannot be started.
};

[[noreturn]] void become(const Start& start) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != start.parent) ::_exit(1);  // It has died before.
  const bool is_ready = ::dup2(start.input, STDIN_FILENO) >= 0 &&
                        ::dup2(start.output, STDOUT_FILENO) >= 0 &&
                        ::dup2(start.output, STDERR_FILENO) >= 0;
  if (is_ready) ::execve(start.arguments[0], start.arguments, start.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(start.report, &error, sizeof(error));
  ::_exit(127);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  void close() {
    ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

Descriptor opened(const std::filesystem::path& path, int flags) {
  const int number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (number < 0) fail("{}: cannot open: {}", path.string(), std::strerror(errno));
  return Descriptor(number);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace

TrialProcess::TrialProcess(const std::vector<std::string>& arguments,
                           const std::filesystem::path& output,
                           const std::vector<std::string>& environment) {
  const std::vector<std::string> variables = environment_with(environment);
  std::vector<char*> words = pointers_to(arguments), settings = pointers_to(variables);
  const Descriptor input = opened("/dev/null", O_RDONLY);
  const Descriptor file(open_own_file(output));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  const Descriptor reads(ends[0]);
  Descriptor reports(ends[1]);
  const Start start{words.data(),  settings.data(), input.number(),
                    file.number(), ::getpid(),      reports.number()};
  pid_ = ::fork();
  if (pid_ == 0) become(start);
  if (pid_ < 0) fail("cannot start another process: {}", std::strerror(errno));
  reports.close();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(reads.number(), &error, sizeof(error));  // Ends when the program has started.
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return;
  ::waitpid(pid_, nullptr, 0);
  fail("cannot start the program {}: {}", arguments[0], std::strerror(error));
}

TrialProcess::~TrialProcess() {
  if (end_) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<TrialEnd> TrialProcess::ended() {
  if (end_) return end_;
  int status = 0;
  const pid_t pid = ::waitpid(pid_, &status, WNOHANG);
  if (pid == 0 || (pid < 0 && errno == EINTR)) return std::nullopt;
  if (pid < 0) {
    end_ = TrialEnd{.exit_code = 1};  // Another wait has reaped it.
  } else if (WIFSIGNALED(status)) {
    end_ = TrialEnd{.signal = WTERMSIG(status)};
  } else if (WIFEXITED(status)) {
    end_ = TrialEnd{.exit_code = WEXITSTATUS(status)};
  }
  return end_;
}

void TrialProcess::ask_to_stop() const {
  if (!end_) ::kill(pid_, SIGTERM);
}

std::string end_text(const TrialEnd& end) {
  if (end.signal == 0) return fmt::format("ended with exit code {}", end.exit_code);
  return "was killed by " + signal_name(end.signal);
}

std::vector<std::string> last_lines(const std::filesystem::path& file, size_t lines,
                                    size_t columns) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : 0;
  if (size <= 0) return {};
  stream.seekg(std::max<std::streamoff>(0, size - kBytesOfTail));
  std::vector<std::string> last;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty()) continue;
    const std::string shown = printable(line);
    last.push_back(shown.size() <= columns ? shown : printable(shown.substr(0, columns - 1)) + "…");
    if (last.size() > lines) last.erase(last.begin());
  }
  return last;
}

}  // namespace tessera
