// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/byte_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <span>
#include <tuple>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"

namespace tessera {
namespace {

// Opens a file, or shares it if it is open already, by device and inode or by its URL: rows of a
// batch may read one file at many places, and descriptors are limited.
std::shared_ptr<const ByteFile> open_shared(const std::filesystem::path& path) {
  static std::mutex mutex;
  using Identity = std::tuple<dev_t, ino_t, std::string>;
  static std::map<Identity, std::weak_ptr<const ByteFile>> open;
  struct stat status {};
  if (!is_url(path) && ::stat(path.c_str(), &status) != 0)
    return std::make_shared<ByteFile>(ByteFile::open(path));
  const std::lock_guard lock(mutex);
  std::weak_ptr<const ByteFile>& known =
      open[is_url(path) ? Identity(0, 0, path.string())
                        : Identity(status.st_dev, status.st_ino, "")];
  std::shared_ptr<const ByteFile> file = known.lock();
  if (!file) {
    file = std::make_shared<ByteFile>(ByteFile::open(path));
    known = file;
    std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
  }
  return file;
}

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::filesystem::path& path)
      : file_(open_shared(path)), where_(path.string()) {}

  size_t read(char* into, size_t size) override {
    const size_t got = file_->read_some_at(at_, std::as_writable_bytes(std::span(into, size)));
    at_ += static_cast<int64_t>(got);
    return got;
  }

  void seek(int64_t offset) override {
    if (offset > file_->size())
      fail("{}: has {} bytes, cannot resume at byte {}; the file has been truncated", where_,
           file_->size(), offset);
    at_ = offset;
  }

  int64_t size() const override { return file_->size(); }
  int64_t bytes_read() const override { return at_; }
  const std::string& where() const override { return where_; }

 private:
  std::shared_ptr<const ByteFile> file_;
  std::string where_;
  int64_t at_ = 0;
};

}  // namespace

size_t read_fully(ByteSource& source, char* into, size_t size) {
  size_t have = 0;
  for (size_t got = 1; got > 0 && have < size; have += got)
    got = source.read(into + have, size - have);
  return have;
}

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  return std::make_unique<FileSource>(path);
}

std::string lower_extension(const std::filesystem::path& path) {
  std::string text = path.extension().string();
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace tessera
