// SPDX-License-Identifier: Apache-2.0
// Regular files: random access (ByteFile), small files read whole, files that are replaced
// atomically, so that after a crash they are complete or absent, and early writeback of large ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace tessera {

// A descriptor, which is closed at the end.
class FileDescriptor {
 public:
  explicit FileDescriptor(int opened = -1) : opened_(opened) {}
  FileDescriptor(FileDescriptor&& other) noexcept : opened_(std::exchange(other.opened_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(opened_, other.opened_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return opened_; }
  bool is_open() const { return opened_ >= 0; }

 private:
  int opened_;
};

// A directory that is held open by its descriptor: files that are written by its path() are in this
// directory even after it is moved, or replaced by another directory or a link of its name.
class HeldDirectory {
 public:
  explicit HeldDirectory(const std::filesystem::path& directory);  // Error if it does not open.

  int descriptor() const { return file_.get(); }
  // Returns "/proc/self/fd/<descriptor>", or the directory's own path where there is no /proc.
  const std::filesystem::path& path() const { return path_; }

 private:
  FileDescriptor file_;
  std::filesystem::path path_;
};

// A failure to open or read a file that says nothing about its contents and may be transient: no
// permission, too many open files, a network file system that does not answer.
class NoAccess : public Error {
 public:
  using Error::Error;
};

// A file that is not in the file system of this machine. Thread-safe.
class RemoteBytes {
 public:
  virtual ~RemoteBytes() = default;
  virtual int64_t size() const = 0;
  // As in ByteFile.
  virtual size_t read_some_at(int64_t offset, std::span<std::byte> bytes) const = 0;
  virtual void prefetch(int64_t offset, int64_t bytes) const = 0;
};
// Sets how ByteFile opens a URL (storage/remote_file.cc).
using OpenRemote = std::shared_ptr<const RemoteBytes> (*)(const std::string& url);
void set_open_remote(OpenRemote open);

// A regular file that is read and written at explicit offsets, without buffering: for few, large
// transfers. Errors name the file.
class ByteFile {
 public:
  // Opens a file, or an object by its URL (storage/storage.h). Error if it does not exist or is not
  // regular (a directory, or a FIFO or device, which could block forever); NoAccess for any other
  // reason.
  static ByteFile open(const std::filesystem::path& path);
  static ByteFile open_to_write(const std::filesystem::path& path);  // An existing file.
  // Creates an empty file. A regular file or a link of this name is replaced, not written through.
  static ByteFile create(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  // Fills `bytes`. Error if the file is too short or the disk fails, NoAccess for any other reason.
  // Thread-safe.
  void read_at(int64_t offset, std::span<std::byte> bytes) const;
  // Reads as many bytes as one system call returns; 0 at the end of the file.
  size_t read_some_at(int64_t offset, std::span<std::byte> bytes) const;
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  // Hints that these bytes will be read soon; that these written bytes should go to the disk soon.
  void prefetch(int64_t offset, int64_t bytes) const;
  void start_sync(int64_t offset, int64_t bytes) const;
  void sync();  // Returns when all bytes are on disk.
  void lock();  // Marks it as in use, for remove_left_over(), where the file system can do that.

 private:
  friend class NewFile;
  // Opens `place`; errors name `path`.
  ByteFile(std::filesystem::path path, int flags, const std::filesystem::path& place);
  ByteFile(std::filesystem::path path, std::shared_ptr<const RemoteBytes> remote);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::shared_ptr<const RemoteBytes> remote_;  // In place of the descriptor.
};

// The temporary name that a file has in the directory of `path` until it is complete. The directory
// is held open, so that the file is created and renamed in it even if another one takes its name.
class TemporaryName {
 public:
  // Removes the files that killed processes left. Error if `path` exists and is not a regular file,
  // or if there is no such directory.
  explicit TemporaryName(std::filesystem::path path);
  ~TemporaryName();  // Removes the file unless it is finished.

  const std::filesystem::path& path() const { return path_; }    // The name when it is complete,
  const std::filesystem::path& place() const { return place_; }  // and until then.
  void finish();  // Renames the file to `path` and syncs the directory. Its bytes are synced.

 private:
  std::filesystem::path path_;
  HeldDirectory directory_;
  std::filesystem::path place_;
  bool finished_ = false;
};

// A new file that has a temporary name beside `path` until it is complete.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path);  // Errors of TemporaryName.

  void write(std::span<const std::byte> bytes);  // Appends.
  void finish();                                 // Syncs the bytes, and renames the file to `path`.

 private:
  TemporaryName name_;
  ByteFile file_;
  int64_t end_ = 0;
};

// Renames `from` to `to` atomically. If `to` exists, the two are exchanged if the file system
// supports it; otherwise `to` is removed first. `directory`: their parent, if it is held open.
void rename_or_exchange(const std::filesystem::path& from, const std::filesystem::path& to,
                        const HeldDirectory* directory = nullptr);

// A new directory that has a temporary name beside `path` until it is complete.
class NewDirectory {
 public:
  explicit NewDirectory(const std::filesystem::path& path);
  ~NewDirectory();  // Removes the directory if it still has the temporary name.

  const std::filesystem::path& place() const { return place_; }
  // ~NewDirectory removes an old one.
  void finish() { rename_or_exchange(place_, path_, &parent_); }
  void release() { place_.clear(); }  // Another process removes it.

 private:
  std::filesystem::path path_, place_;
  HeldDirectory parent_;
  FileDescriptor file_;  // Locked: it is in use.
};

// Checks that `path`, after symbolic links, is a regular file; Error otherwise. Call it before a
// library opens the file: opening a FIFO blocks, and reading a device may never end.
void require_regular_file(const std::filesystem::path& path);

// Returns the contents of a regular file, or of an object by its URL. Error for any other file, and
// for more than `max_bytes`.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 30);

// Replaces a file atomically: writes a temporary file beside it, syncs it and renames it.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Throws an Error if `path` exists and is not a regular file: renaming a new file to it would
// replace a device, a FIFO or a directory.
void require_replaceable(const std::filesystem::path& path);

// Throws an Error if `path` exists and is not a regular file that begins with `begin`, like the
// text that is to replace it: the name is probably a mistake. `kind`: "a plan of --mode=plan".
void require_same_kind(const std::filesystem::path& path, std::string_view begin,
                       std::string_view kind);

// Opens or creates a file of a run directory to read and append (O_APPEND). Error for a symbolic or
// hard link and for anything that is not a regular file, so that nothing outside the directory is
// written.
FileDescriptor open_own_file(const std::filesystem::path& path);

// Sync the bytes of a file, or the entries of a directory, to disk.
void sync_file(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& path);

// Returns a name beside `path` that is unique to this process: "<dir>/.<name>.<tag>.<pid>".
std::filesystem::path temporary_beside(const std::filesystem::path& path, std::string_view tag);

// Removes temporary files and directories of `path` that killed processes left. Those in use are
// locked by NewFile, NewDirectory or HDF5, and stay.
void remove_left_over(const std::filesystem::path& path);

// Removes everything with such names. The caller must be the only writer in this directory.
void remove_temporaries(const std::filesystem::path& directory);

enum class LockResult {
  kLocked,
  kHeldByAnother,
  kUnavailable,  // The file system has no locks.
};
enum class LockWait { kNo, kYes };

// Locks an open file or directory between processes by flock, or where the file system has none by
// a record lock. The kernel releases it when the process ends.
LockResult lock_file(int descriptor, LockWait wait);

// Starts the writeback of a file (sync_file_range) while it is still being written, so that the
// sync at the end is shorter. In a thread, because the request itself blocks on a slow disk. Only
// an optimization: without it the final sync writes everything.
class WritebackThread {
 public:
  explicit WritebackThread(const ByteFile& file);          // Must outlive it.
  WritebackThread& operator=(WritebackThread&&) = delete;  // Neither copied nor moved.

  // Reports that the bytes before `end` have been written.
  void wrote(int64_t end);

 private:
  void run(const std::stop_token& stop);

  const ByteFile& file_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t written_ = 0;
  std::jthread thread_;  // Its end waits for a running request.
};

}  // namespace tessera
