// SPDX-License-Identifier: Apache-2.0
#include "core/io/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "core/base/process.h"
#include "core/io/http.h"

namespace tessera {
namespace {

std::string errno_text() { return std::strerror(errno); }

// Returns whether a failed open means that there is no such regular file. (A socket is ENXIO.)
bool is_missing(int reason) {
  return reason == ENOENT || reason == ENOTDIR || reason == ELOOP || reason == EISDIR ||
         reason == ENXIO || reason == ENODEV;
}

// Reports a failure to read an existing file. A bad sector (EIO) is permanent; any other reason may
// be transient.
[[noreturn]] void fail_to_read(const std::filesystem::path& path, std::string_view what) {
  const bool permanent = errno == EIO;
  const std::string text = fmt::format("{}: {}: {}", path.string(), what, errno_text());
  if (permanent) throw Error(text);
  throw NoAccess(text);
}

void sync_path(const std::filesystem::path& path, int flags) {
  const FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file.is_open()) fail("{}: cannot open to sync: {}", path.string(), errno_text());
  if (::fsync(file.get()) != 0) fail("{}: cannot sync to disk: {}", path.string(), errno_text());
}

// Returns whether a name is ".<name>.<tag>.<pid>".
bool is_temporary(const std::string& name) {
  const size_t dot = name.rfind('.');
  return name.starts_with('.') && dot + 1 < name.size() && std::ranges::count(name, '.') >= 3 &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Throws an Error that names the kind of file unless `status` is that of a regular file.
void check_regular_file(const std::filesystem::path& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  const std::string_view kind = S_ISDIR(status.st_mode)    ? "a directory"
                                : S_ISFIFO(status.st_mode) ? "a FIFO"
                                : S_ISSOCK(status.st_mode) ? "a socket"
                                                           : "a device";
  fail("{}: expected a regular file, got {}", path.string(), kind);
}

// Returns whether a process has locked this file or directory, as far as this host can tell.
bool is_in_use(const std::filesystem::path& path) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  const FileDescriptor file(::open(path.c_str(), flags));
  if (!file.is_open())
    return errno != ELOOP && errno != ENXIO;  // A link or a socket is not in use.
  struct stat status {};
  const bool is_new =  // It may not be locked yet.
      ::fstat(file.get(), &status) != 0 || status.st_mtime + 2 > std::time(nullptr);
  return is_new || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::filesystem::path expect_replaceable(std::filesystem::path path) {
  require_replaceable(path);
  std::error_code ignored;
  if (!std::filesystem::is_directory(parent_of(path), ignored))
    fail("{}: cannot write: there is no folder {}", path.string(), parent_of(path).string());
  return path;
}

std::filesystem::path with_directories(std::filesystem::path path) {
  std::filesystem::create_directories(path);
  return path;
}

OpenRemote open_remote = nullptr;

constexpr int64_t kWritebackBytes = int64_t{32} << 20;  // Bytes of one request.

}  // namespace

void set_open_remote(OpenRemote open) { open_remote = open; }

FileDescriptor::~FileDescriptor() {
  if (is_open()) ::close(opened_);
}

HeldDirectory::HeldDirectory(const std::filesystem::path& directory)
    : file_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!file_.is_open()) fail("{}: cannot open: {}", directory.string(), errno_text());
  path_ = fmt::format("/proc/self/fd/{}", descriptor());
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) path_ = directory;
}

// Opens with O_NONBLOCK: opening a FIFO would otherwise block until its other end is opened.
ByteFile::ByteFile(std::filesystem::path path, int flags, const std::filesystem::path& place)
    : path_(std::move(path)),
      file_(::open(place.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666)) {
  if (!file_.is_open()) {
    const int reason = errno;
    const std::string text = fmt::format("{}: cannot open: {}", path_.string(), errno_text());
    if (is_missing(reason)) throw Error(text);
    throw NoAccess(text);
  }
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_to_read(path_, "cannot open");
  check_regular_file(path_, status);
}

ByteFile::ByteFile(std::filesystem::path path, std::shared_ptr<const RemoteBytes> remote)
    : path_(std::move(path)), remote_(std::move(remote)) {}

ByteFile ByteFile::open(const std::filesystem::path& path) {
  if (is_url(path)) return {path, open_remote(path.string())};
  return {path, O_RDONLY, path};
}
ByteFile ByteFile::open_to_write(const std::filesystem::path& path) { return {path, O_RDWR, path}; }
ByteFile ByteFile::create(const std::filesystem::path& path) {
  require_replaceable(path);
  ::unlink(path.c_str());
  return {path, O_RDWR | O_CREAT | O_EXCL, path};
}

int64_t ByteFile::size() const {
  if (remote_) return remote_->size();
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_to_read(path_, "cannot read its size");
  return status.st_size;
}

void ByteFile::read_at(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const size_t got = read_some_at(offset, bytes);
    if (got == 0) fail("{}: the file ends at byte {}, expected more bytes", path_.string(), offset);
    bytes = bytes.subspan(got);
    offset += static_cast<int64_t>(got);
  }
}

size_t ByteFile::read_some_at(int64_t offset, std::span<std::byte> bytes) const {
  if (remote_) return remote_->read_some_at(offset, bytes);
  for (;;) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), offset);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) fail_to_read(path_, "cannot read");
  }
}

void ByteFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("{}: cannot write: {}", path_.string(), errno_text());
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void ByteFile::prefetch(int64_t offset, int64_t bytes) const {
  if (remote_) return remote_->prefetch(offset, bytes);
  ::posix_fadvise(file_.get(), offset, bytes, POSIX_FADV_WILLNEED);
}

void ByteFile::start_sync(int64_t offset, int64_t bytes) const {
#if defined(__linux__)
  ::sync_file_range(file_.get(), offset, bytes, SYNC_FILE_RANGE_WRITE);
#else
  static_cast<void>(offset), static_cast<void>(bytes);
#endif
}

void ByteFile::sync() {
  if (::fsync(file_.get()) != 0) fail("{}: cannot sync to disk: {}", path_.string(), errno_text());
}

void ByteFile::lock() { ::flock(file_.get(), LOCK_EX | LOCK_NB); }

void require_regular_file(const std::filesystem::path& path) { ByteFile::open(path); }

void require_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) check_regular_file(path, status);
}

void require_same_kind(const std::filesystem::path& path, std::string_view begin,
                       std::string_view kind) {
  if (!std::filesystem::exists(path)) return;
  const ByteFile file = ByteFile::open(path);
  std::string found(begin.size(), '\0');
  found.resize(file.read_some_at(0, std::as_writable_bytes(std::span(found))));
  if (found != begin)
    fail("{} exists and is not {}; give another name, or remove it", path.string(), kind);
}

TemporaryName::TemporaryName(std::filesystem::path path)
    : path_(expect_replaceable(std::move(path))),
      directory_(parent_of(path_)),
      place_(temporary_beside(directory_.path() / path_.filename(), "new")) {
  remove_left_over(path_);
  ::unlink(place_.c_str());
}

TemporaryName::~TemporaryName() {
  if (!finished_) ::unlink(place_.c_str());
}

void TemporaryName::finish() {
  std::filesystem::rename(place_, directory_.path() / path_.filename());
  finished_ = true;
  if (::fsync(directory_.descriptor()) != 0)
    fail("{}: cannot sync to disk: {}", parent_of(path_).string(), errno_text());
}

NewFile::NewFile(std::filesystem::path path)
    : name_(std::move(path)), file_(name_.path(), O_RDWR | O_CREAT | O_EXCL, name_.place()) {
  file_.lock();
}

void NewFile::write(std::span<const std::byte> bytes) {
  file_.write_at(end_, bytes);
  end_ += std::ssize(bytes);
}

void NewFile::finish() {
  file_.sync();
  name_.finish();
}

std::string read_file(const std::filesystem::path& path, int64_t max_bytes) {
  const ByteFile file = ByteFile::open(path);
  // The size is only a hint: files of /proc report 0, and others may grow.
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

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  NewFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

FileDescriptor open_own_file(const std::filesystem::path& path) {
  // O_NONBLOCK: the other end of a FIFO may never be opened.
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  FileDescriptor file(::open(path.c_str(), flags, 0666));
  if (!file.is_open() && errno == ELOOP)
    fail("{} is a symbolic link; a run does not write through links; remove it", path.string());
  if (!file.is_open()) fail("{}: cannot open: {}", path.string(), errno_text());
  struct stat status {};
  const bool is_known = ::fstat(file.get(), &status) == 0;
  if (is_known && S_ISREG(status.st_mode) && status.st_nlink <= 1) return file;
  fail("{} is {}, expected a regular file with one name; remove it", path.string(),
       S_ISREG(status.st_mode) ? "a hard link to another file" : "not a regular file");
}

void sync_file(const std::filesystem::path& path) { sync_path(path, O_RDONLY); }

void sync_directory(const std::filesystem::path& path) { sync_path(path, O_RDONLY | O_DIRECTORY); }

void rename_or_exchange(const std::filesystem::path& from, const std::filesystem::path& to,
                        const HeldDirectory* directory) {
  const int where = directory == nullptr ? AT_FDCWD : directory->descriptor();
  const std::filesystem::path old_name = directory == nullptr ? from : from.filename();
  const std::filesystem::path new_name = directory == nullptr ? to : to.filename();
  const auto renames = [&](unsigned flags) {
    return ::renameat2(where, old_name.c_str(), where, new_name.c_str(), flags) == 0;
  };
  if (renames(RENAME_NOREPLACE) || (errno == EEXIST && renames(RENAME_EXCHANGE))) return;
  // Some network file systems support neither flag, and a rename cannot replace a directory.
  if (errno == EINVAL || errno == ENOSYS) {
    std::filesystem::remove_all(to);
    std::filesystem::rename(from, to);
    return;
  }
  fail("cannot rename {} to {}: {}", from.string(), to.string(), errno_text());
}

std::filesystem::path temporary_beside(const std::filesystem::path& path, std::string_view tag) {
  return parent_of(path) / fmt::format(".{}.{}.{}", path.filename().string(), tag, ::getpid());
}

void remove_left_over(const std::filesystem::path& path) {
  const std::string own = fmt::format(".{}.", path.filename().string());
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent_of(path), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(own) || !is_temporary(name) || is_in_use(entry.path())) continue;
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

NewDirectory::NewDirectory(const std::filesystem::path& path)
    : path_(path.has_filename() ? path : path.parent_path()),
      place_(temporary_beside(path_, "new")),
      parent_(with_directories(parent_of(path_))) {
  remove_left_over(path_);
  std::filesystem::remove_all(place_);
  const std::string name = place_.filename().string();
  if (::mkdirat(parent_.descriptor(), name.c_str(), 0777) != 0)
    fail("{}: cannot create: {}", place_.string(), errno_text());
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
  file_ = FileDescriptor(::openat(parent_.descriptor(), name.c_str(), flags));
  ::flock(file_.get(), LOCK_EX | LOCK_NB);
}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!place_.empty()) std::filesystem::remove_all(place_, ignored);
}

void remove_temporaries(const std::filesystem::path& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (std::error_code busy; is_temporary(entry.path().filename().string()))
      std::filesystem::remove_all(entry.path(),
                                  busy);  // In use on NFS: it stays for the next time.
}

LockResult lock_file(int descriptor, LockWait wait) {
  const bool waits = wait == LockWait::kYes;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  int result = 0;
  do {
    result = ::flock(descriptor, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
    if (result != 0 && errno != EINTR && errno != EWOULDBLOCK)
      result = ::fcntl(descriptor, waits ? F_OFD_SETLKW : F_OFD_SETLK, &whole);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return LockResult::kLocked;
  return errno == EAGAIN || errno == EACCES ? LockResult::kHeldByAnother : LockResult::kUnavailable;
}

WritebackThread::WritebackThread(const ByteFile& file) : file_(file) {
  try {
    thread_ = start_thread([this](const std::stop_token& stop) { run(stop); });
  } catch (const Error&) {  // The final sync then writes everything.
  }
}

void WritebackThread::wrote(int64_t end) {
  const std::lock_guard lock(mutex_);
  written_ = end;
  changed_.notify_all();
}

void WritebackThread::run(const std::stop_token& stop) {
  int64_t requested = 0;
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return written_ >= requested + kWritebackBytes; })) {
    const int64_t end = written_;
    lock.unlock();
    file_.start_sync(requested, end - requested);
    requested = end;
    lock.lock();
  }
}

}  // namespace tessera
