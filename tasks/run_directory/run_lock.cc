// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/run_lock.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string holder(int descriptor) {
  char text[512];
  const ssize_t length = ::pread(descriptor, text, sizeof(text), 0);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : "a process unknown";
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run_directory) {
  const std::filesystem::path path = run_directory / "lock";
  descriptor_ = open_own_file(path);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string who = holder(descriptor_);
    ::close(descriptor_);
    if (error != EWOULDBLOCK) fail("{}: cannot lock: {}", path.string(), std::strerror(error));
    fail(
        "{} is being written by {}; wait for it to end, or give this run a --job_log_dir of its "
        "own",
        run_directory.string(), who);
  }
  // Only for that message; the lock itself is the kernel's, so a stale name does no harm.
  const std::string who = fmt::format("process {} on {}", ::getpid(), host_name());
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::write(descriptor_, who.data(), who.size()) != static_cast<ssize_t>(who.size())) {
    const std::string why = std::strerror(errno);
    ::close(descriptor_);
    fail("{}: cannot write: {}", path.string(), why);
  }
  remove_temporaries(run_directory);
}

RunLock::~RunLock() { ::close(descriptor_); }

}  // namespace tessera
