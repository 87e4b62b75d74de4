// SPDX-License-Identifier: Apache-2.0
#include "core/io/byte_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

std::string errno_text() { return std::strerror(errno); }

// What is certain to be missing, or to be anything but a regular file. (A socket is ENXIO.)
bool is_no_file(int reason) {
  return reason == ENOENT || reason == ENOTDIR || reason == ELOOP || reason == EISDIR ||
         reason == ENXIO || reason == ENODEV;
}

// Of a file that is there. A bad sector (EIO) stays; any other reason may pass.
[[noreturn]] void fail_to_read(const std::filesystem::path& path, std::string_view what) {
  const bool stays = errno == EIO;
  const std::string text = fmt::format("{}: {}: {}", path.string(), what, errno_text());
  if (stays) throw Error(text);
  throw NoAccess(text);
}

}  // namespace

void check_regular_file(const std::filesystem::path& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  const std::string_view kind = S_ISDIR(status.st_mode)    ? "a directory"
                                : S_ISFIFO(status.st_mode) ? "a FIFO"
                                : S_ISSOCK(status.st_mode) ? "a socket"
                                                           : "a device";
  fail("{}: expected a regular file, got {}", path.string(), kind);
}

// O_NONBLOCK: a FIFO would keep open() waiting for its other end.
ByteFile::ByteFile(std::filesystem::path path, int flags)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666)) {
  if (descriptor_ < 0) {
    const int reason = errno;
    const std::string text = fmt::format("{}: cannot open: {}", path_.string(), errno_text());
    if (is_no_file(reason)) throw Error(text);
    throw NoAccess(text);
  }
  struct stat status {};
  try {
    if (::fstat(descriptor_, &status) != 0) fail_to_read(path_, "cannot open");
    check_regular_file(path_, status);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ByteFile ByteFile::open(const std::filesystem::path& path) { return {path, O_RDONLY}; }
ByteFile ByteFile::open_to_write(const std::filesystem::path& path) { return {path, O_RDWR}; }
ByteFile ByteFile::create(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) check_regular_file(path, status);
  ::unlink(path.c_str());
  return {path, O_RDWR | O_CREAT | O_EXCL};
}

ByteFile::ByteFile(ByteFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

ByteFile& ByteFile::operator=(ByteFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

ByteFile::~ByteFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int64_t ByteFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_to_read(path_, "cannot read its size");
  return status.st_size;
}

void ByteFile::read_at(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const size_t got = read_some_at(offset, bytes);
    if (got == 0) fail("{}: ends at byte {}, where more was expected", path_.string(), offset);
    bytes = bytes.subspan(got);
    offset += static_cast<int64_t>(got);
  }
}

size_t ByteFile::read_some_at(int64_t offset, std::span<std::byte> bytes) const {
  for (;;) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) fail_to_read(path_, "cannot read");
  }
}

void ByteFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("{}: cannot write: {}", path_.string(), errno_text());
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void ByteFile::prefetch(int64_t offset, int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

void ByteFile::start_sync(int64_t offset, int64_t bytes) const {
#if defined(__linux__)
  ::sync_file_range(descriptor_, offset, bytes, SYNC_FILE_RANGE_WRITE);
#else
  static_cast<void>(offset), static_cast<void>(bytes);
#endif
}

void ByteFile::sync() {
  if (::fsync(descriptor_) != 0) fail("{}: cannot sync to disk: {}", path_.string(), errno_text());
}

}  // namespace tessera
