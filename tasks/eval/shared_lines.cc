// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/shared_lines.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

class LockedFile {
 public:
  explicit LockedFile(const std::filesystem::path& path) : path_(path) {
    descriptor_ = open_own_file(path);
    while (::flock(descriptor_, LOCK_EX) != 0)
      if (errno != EINTR) fail_closing("cannot lock");
  }
  ~LockedFile() { ::close(descriptor_); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  // The size up to the end of the last whole line.
  int64_t whole_lines() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_with("cannot look at it");
    int64_t size = status.st_size;
    char chunk[4096];
    while (size > 0) {
      const int64_t begin = std::max<int64_t>(0, size - static_cast<int64_t>(sizeof(chunk)));
      const ssize_t read = ::pread(descriptor_, chunk, static_cast<size_t>(size - begin), begin);
      if (read != size - begin) fail_with("cannot read");
      for (int64_t i = read; i > 0; --i)
        if (chunk[i - 1] == '\n') return begin + i;
      size = begin;
    }
    return 0;
  }
  void cut(int64_t size) {
    if (::ftruncate(descriptor_, size) != 0) fail_with("cannot shorten");
  }
  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with("cannot write");
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

 private:
  [[noreturn]] void fail_with(std::string_view what) const {
    fail("{}: {}: {}", path_.string(), what, std::strerror(errno));
  }
  // From the constructor, after which there is no destructor.
  [[noreturn]] void fail_closing(std::string_view what) const {
    const int error = errno;
    ::close(descriptor_);
    errno = error;
    fail_with(what);
  }

  const std::filesystem::path& path_;
  int descriptor_ = -1;
};

}  // namespace

void append_shared_line(const std::filesystem::path& path, std::string_view line) {
  std::filesystem::create_directories(path.parent_path());
  LockedFile file(path);
  file.cut(file.whole_lines());
  file.write(std::string(line) + "\n");
}

}  // namespace tessera
