// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {

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

}  // namespace tessera
