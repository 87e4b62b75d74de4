// SPDX-License-Identifier: Apache-2.0
#include "core/io/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/base/error.h"
#include "core/io/byte_file.h"

namespace tessera {
namespace {

std::string system_reason() { return std::strerror(errno); }

void sync_path(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) fail("{}: cannot open to sync: {}", path.string(), system_reason());
  const int result = ::fsync(descriptor);
  const std::string why = system_reason();
  ::close(descriptor);
  if (result != 0) fail("{}: cannot sync to disk: {}", path.string(), why);
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

void require_regular_file(const std::filesystem::path& path) { ByteFile::open(path); }

void require_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) check_regular_file(path, status);
}

std::string read_file(const std::filesystem::path& path, int64_t max_bytes) {
  const ByteFile file = ByteFile::open(path);
  // The size is a hint alone: files of /proc have none, and others may grow.
  std::string text;
  text.reserve(static_cast<size_t>(std::clamp<int64_t>(file.size(), 0, max_bytes)));
  std::array<std::byte, 1 << 16> block;
  while (std::ssize(text) <= max_bytes) {
    const size_t count = file.read_some_at(std::ssize(text), block);
    if (count == 0) return text;
    text.append(reinterpret_cast<const char*>(block.data()), count);
  }
  fail("{}: larger than the limit of {} bytes for such a file", path.string(), max_bytes);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  ByteFile file = ByteFile::create(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  require_replaceable(path);
  const std::filesystem::path temporary = temporary_beside(path, "new");
  try {
    write_file(temporary, text);
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
