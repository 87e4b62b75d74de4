// SPDX-License-Identifier: Apache-2.0
#include "tests/support/limited_run.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "core/base/error.h"
#include "tests/support/compiler.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

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
