// SPDX-License-Identifier: Apache-2.0
#include "inputs/documents/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::filesystem::path& path) : where_(path.string()) {
    require_regular_file(path);
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("{}: cannot open: {}", where_, std::strerror(errno));
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~FileSource() override { ::close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  size_t read(char* into, size_t size) override {
    for (;;) {
      const ssize_t got = ::read(descriptor_, into, size);
      if (got >= 0) {
        at_ += got;
        return static_cast<size_t>(got);
      }
      if (errno != EINTR) fail("{}: cannot read: {}", where_, std::strerror(errno));
    }
  }

  void seek(int64_t offset) override {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0)
      fail("{}: cannot tell its size: {}", where_, std::strerror(errno));
    if (offset > status.st_size)
      fail("{}: has {} bytes, but is to be read on from byte {}; it was longer once", where_,
           status.st_size, offset);
    if (::lseek(descriptor_, offset, SEEK_SET) < 0)
      fail("{}: cannot go to byte {}: {}", where_, offset, std::strerror(errno));
    at_ = offset;
  }

  int64_t bytes_read() const override { return at_; }
  const std::string& where() const override { return where_; }

 private:
  std::string where_;
  int descriptor_ = -1;
  int64_t at_ = 0;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string bytes, std::string where)
      : bytes_(std::move(bytes)), where_(std::move(where)) {}

  size_t read(char* into, size_t size) override {
    const size_t got = std::min(size, bytes_.size() - at_);
    std::memcpy(into, bytes_.data() + at_, got);
    at_ += got;
    return got;
  }
  void seek(int64_t offset) override {
    if (offset > static_cast<int64_t>(bytes_.size()))
      fail("{}: has {} bytes, but is to be read on from byte {}; it was longer once", where_,
           bytes_.size(), offset);
    at_ = static_cast<size_t>(offset);
  }
  int64_t bytes_read() const override { return static_cast<int64_t>(at_); }
  const std::string& where() const override { return where_; }

 private:
  std::string bytes_;
  std::string where_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  return std::make_unique<FileSource>(path);
}

std::unique_ptr<ByteSource> bytes_in_memory(std::string bytes, std::string where) {
  return std::make_unique<MemorySource>(std::move(bytes), std::move(where));
}

}  // namespace tessera
