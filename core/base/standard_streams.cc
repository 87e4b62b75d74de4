// SPDX-License-Identifier: Apache-2.0
#include "core/base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace tessera {
namespace {

// Opened the wrong way round, so that its use is an error.
void keep_number(int descriptor, int flags) {
  if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) return;
  const int opened = ::open("/dev/null", flags);
  if (opened < 0 || opened == descriptor) return;
  ::dup2(opened, descriptor);
  ::close(opened);
}

// A pipe or a socket whose other end is closed.
bool reader_has_left(int descriptor) {
  pollfd state{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void prepare_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  keep_number(STDIN_FILENO, O_WRONLY);
  keep_number(STDOUT_FILENO, O_RDONLY);
  keep_number(STDERR_FILENO, O_RDONLY);
}

std::string flush_standard_output() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0;
  if (flushed || errno == EPIPE) return "";
  const std::string reason = errno == 0 ? "a write failed" : std::strerror(errno);
  return reader_has_left(STDOUT_FILENO) ? "" : reason;
}

}  // namespace tessera
