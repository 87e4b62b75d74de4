// SPDX-License-Identifier: Apache-2.0
#include "core/base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace tessera {
namespace {

std::string system_reason() { return std::strerror(errno); }

struct Descriptor {
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  int number;
};

void check_regular(const std::filesystem::path& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  const std::string_view kind = S_ISDIR(status.st_mode)    ? "a directory"
                                : S_ISFIFO(status.st_mode) ? "a FIFO"
                                : S_ISSOCK(status.st_mode) ? "a socket"
                                                           : "a device";
  fail("{}: expected a regular file, got {}", path.string(), kind);
}

void sync_path(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) fail("{}: cannot open to sync: {}", path.string(), system_reason());
  const int result = ::fsync(descriptor);
  const std::string why = system_reason();
  ::close(descriptor);
  if (result != 0) fail("{}: cannot sync to disk: {}", path.string(), why);
}

void write_whole(const std::filesystem::path& path, std::string_view text) {
  ::unlink(path.c_str());  // Whatever has this name is not written through.
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail("{}: cannot create: {}", path.string(), system_reason());
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const std::string why = system_reason();
      ::close(descriptor);
      fail("{}: cannot write: {}", path.string(), why);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  const int synced = ::fsync(descriptor);
  const std::string why = system_reason();
  ::close(descriptor);
  if (synced != 0) fail("{}: cannot sync to disk: {}", path.string(), why);
}

// ".<name>.<tag>.<pid>"
bool is_temporary(const std::string& name) {
  const size_t dot = name.rfind('.');
  return name.starts_with('.') && dot + 1 < name.size() &&
         std::count(name.begin(), name.end(), '.') >= 3 &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

void require_regular_file(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    fail("{}: cannot open: {}", path.string(), system_reason());
  check_regular(path, status);
}

void require_replaceable(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) check_regular(path, status);
}

std::string read_file(const std::filesystem::path& path, int64_t max_bytes) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat status;
  if (file.number < 0 || ::fstat(file.number, &status) != 0)
    fail("{}: cannot open: {}", path.string(), system_reason());
  check_regular(path, status);
  // The size is a hint alone: files of /proc have none, and others may grow.
  std::string text;
  text.reserve(static_cast<size_t>(std::clamp<int64_t>(status.st_size, 0, max_bytes)));
  std::array<char, 1 << 16> block;
  while (static_cast<int64_t>(text.size()) <= max_bytes) {
    const ssize_t count = ::read(file.number, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("{}: cannot read: {}", path.string(), system_reason());
    if (count == 0) return text;
    text.append(block.data(), static_cast<size_t>(count));
  }
  fail("{}: larger than the limit of {} bytes for such a file", path.string(), max_bytes);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  require_replaceable(path);
  const std::filesystem::path temporary = temporary_beside(path, "new");
  try {
    write_whole(temporary, text);
    std::filesystem::rename(temporary, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  sync_directory(parent_of(path));
}

int open_own_file(const std::filesystem::path& path) {
  // Not blocking: the other end of a FIFO may never be opened.
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int descriptor = ::open(path.c_str(), flags, 0666);
  if (descriptor < 0 && errno == ELOOP)
    fail("{} is a symbolic link, through which a run does not write; remove it", path.string());
  if (descriptor < 0) fail("{}: cannot open: {}", path.string(), system_reason());
  struct stat status {};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  if (is_known && S_ISREG(status.st_mode) && status.st_nlink <= 1) return descriptor;
  ::close(descriptor);
  fail("{} is {}, to which a run does not write; remove it", path.string(),
       S_ISREG(status.st_mode) ? "a hard link to another file" : "not a regular file");
}

void sync_file(const std::filesystem::path& path) { sync_path(path, O_RDONLY); }

void sync_directory(const std::filesystem::path& path) { sync_path(path, O_RDONLY | O_DIRECTORY); }

void rename_or_exchange(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST &&
      ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0)
    return;
  // Some network file systems know neither; there a rename onto a directory needs it gone first.
  if (errno == EINVAL || errno == ENOSYS) {
    std::filesystem::remove_all(to);
    std::filesystem::rename(from, to);
    return;
  }
  fail("cannot rename {} to {}: {}", from.string(), to.string(), system_reason());
}

std::filesystem::path temporary_beside(const std::filesystem::path& path, std::string_view tag) {
  return parent_of(path) / fmt::format(".{}.{}.{}", path.filename().string(), tag, ::getpid());
}

void remove_temporaries(const std::filesystem::path& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (is_temporary(entry.path().filename().string())) std::filesystem::remove_all(entry.path());
}

}  // namespace tessera
