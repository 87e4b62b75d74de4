// SPDX-License-Identifier: Apache-2.0
// A regular file that is read and written at places of the caller's choice, past every library.
// Errors name the file. Not buffered: made for runs of many bytes, and for few small ones.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/error.h"

namespace tessera {

// A file that may be as it should be, but that this process could not open or read: no permission,
// too many open files, a network file system that does not answer. Later it may succeed.
class NoAccess : public Error {
 public:
  using Error::Error;
};

// Error, which says what the path is instead, unless its status is that of a regular file.
void check_regular_file(const std::filesystem::path& path, const struct stat& status);

class ByteFile {
 public:
  // Error if there is no such file, or if it is anything but a regular one (a directory, a FIFO or
  // a device, which could make a reader wait without end); NoAccess for any other reason.
  static ByteFile open(const std::filesystem::path& path);
  static ByteFile open_to_write(const std::filesystem::path& path);  // As it is; it must exist.
  // New and empty. A regular file or a link of this name is replaced, not written through.
  static ByteFile create(const std::filesystem::path& path);

  ByteFile(ByteFile&& other) noexcept;
  ByteFile& operator=(ByteFile&& other) noexcept;
  ~ByteFile();

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  // Fills `bytes`; Error if the file ends before or the disk cannot read it, NoAccess for any other
  // reason. Any thread.
  void read_at(int64_t offset, std::span<std::byte> bytes) const;
  // As many bytes as the system gives at once: fewer than asked for, or 0 at the end of the file.
  size_t read_some_at(int64_t offset, std::span<std::byte> bytes) const;
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  // Hints, which may do nothing: these bytes will be read soon; these, written before, are to go to
  // the disk by and by.
  void prefetch(int64_t offset, int64_t bytes) const;
  void start_sync(int64_t offset, int64_t bytes) const;
  void sync();  // Returns when all bytes are on disk.

 private:
  ByteFile(std::filesystem::path path, int flags);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace tessera
