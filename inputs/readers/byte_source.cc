// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/byte_source.h"

#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <zlib.h>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

// Opens a file, or shares it if it is open already, by device and inode: rows of a batch may read
// one file at many places, and descriptors are limited.
std::shared_ptr<const ByteFile> open_shared(const std::filesystem::path& path) {
  static std::mutex mutex;
  static std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const ByteFile>> open;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::make_shared<ByteFile>(ByteFile::open(path));
  const std::lock_guard lock(mutex);
  std::weak_ptr<const ByteFile>& known = open[{status.st_dev, status.st_ino}];
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

  int64_t bytes_read() const override { return at_; }
  const std::string& where() const override { return where_; }

 private:
  std::shared_ptr<const ByteFile> file_;
  std::string where_;
  int64_t at_ = 0;
};

constexpr size_t kCompressedBlock = 1 << 16;

// Common part of decompressors: a buffer of compressed bytes, and seeking by reading.
class CompressedSource : public ByteSource {
 public:
  explicit CompressedSource(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)) {}

  size_t read(char* into, size_t size) final {
    if (size == 0) return 0;
    const size_t got = decompress(into, size);
    position_ += static_cast<int64_t>(got);
    return got;
  }

  void seek(int64_t offset) final {
    if (offset < position_) {
      compressed_->seek(0);
      next_ = end_ = nullptr;
      position_ = 0;
      restart();
    }
    std::vector<char> skipped(position_ < offset ? kCompressedBlock : 0);
    while (position_ < offset) {
      const auto left = static_cast<size_t>(offset - position_);
      if (read(skipped.data(), std::min(left, skipped.size())) == 0)
        fail("{}: has {} decompressed bytes, cannot resume at byte {}; the file has been truncated",
             where(), position_, offset);
    }
  }

  const std::string& where() const final { return compressed_->where(); }
  int64_t bytes_read() const final { return compressed_->bytes_read(); }

 protected:
  // Reads as `read` does. Consumes compressed bytes from [next_, end_), which `refill` fills.
  virtual size_t decompress(char* into, size_t size) = 0;
  // Resets the decompressor to the beginning of the stream.
  virtual void restart() = 0;

  // Reads more compressed bytes, once all are consumed; false at the end.
  bool refill() {
    buffer_.resize(kCompressedBlock);
    const size_t got = compressed_->read(buffer_.data(), buffer_.size());
    next_ = buffer_.data();
    end_ = next_ + got;
    return got > 0;
  }
  [[noreturn]] void fail_truncated(const char* format) const {
    fail("{}: the {} stream is truncated after {} bytes of text; copy or download it again",
         where(), format, position_);
  }
  [[noreturn]] void fail_damaged(const char* format, const char* reason) const {
    fail("{}: damaged {} stream after {} bytes of text: {}", where(), format, position_, reason);
  }

  const char* next_ = nullptr;
  const char* end_ = nullptr;

 private:
  std::unique_ptr<ByteSource> compressed_;
  std::vector<char> buffer_;
  int64_t position_ = 0;  // In decompressed bytes.
};

class GzipSource final : public CompressedSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed)) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK)
      fail("{}: zlib initialisation failed", where());
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

 protected:
  size_t decompress(char* into, size_t size) override {
    constexpr size_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits.
    stream_.next_out = reinterpret_cast<Bytef*>(into);
    stream_.avail_out = static_cast<uInt>(std::min(size, kMostAtOnce));
    while (stream_.next_out == reinterpret_cast<Bytef*>(into)) {
      if (next_ == end_ && !refill()) {
        if (is_in_member_ || !has_member_) fail_truncated("gzip");
        return 0;
      }
      if (is_in_member_ || begin_member()) inflate_some();
    }
    return static_cast<size_t>(reinterpret_cast<char*>(stream_.next_out) - into);
  }

  void restart() override {
    inflateReset(&stream_);
    is_in_member_ = has_member_ = false;
  }

 private:
  // Begins a member. Zeros may follow the last: gzip allows them for tapes and block devices.
  bool begin_member() {
    if (has_member_) next_ = std::find_if(next_, end_, [](char c) { return c != '\0'; });
    if (next_ == end_) return false;
    inflateReset(&stream_);
    is_in_member_ = has_member_ = true;
    return true;
  }

  void inflate_some() {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next_));
    stream_.avail_in = static_cast<uInt>(end_ - next_);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    next_ = reinterpret_cast<const char*>(stream_.next_in);
    if (result == Z_STREAM_END) {
      is_in_member_ = false;
    } else if (result == Z_MEM_ERROR) {
      fail("{}: out of memory for decompression", where());
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail_damaged("gzip", stream_.msg == nullptr ? "unknown error" : stream_.msg);
    }
  }

  z_stream stream_{};
  bool is_in_member_ = false;
  bool has_member_ = false;  // Any member so far.
};

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

class ZstdSource final : public CompressedSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail("{}: out of memory for decompression", where());
  }

 protected:
  size_t decompress(char* into, size_t size) override {
    ZSTD_outBuffer out{into, size, 0};
    while (out.pos == 0) {
      if (next_ == end_ && !holds_output_ && !refill()) {
        if (is_in_frame_ || !has_frame_) fail_truncated("zstd");
        return 0;
      }
      decompress_some(&out);
    }
    return out.pos;
  }

  void restart() override {
    ZSTD_DCtx_reset(stream_.get(), ZSTD_reset_session_only);
    is_in_frame_ = has_frame_ = holds_output_ = false;
  }

 private:
  void decompress_some(ZSTD_outBuffer* out) {
    ZSTD_inBuffer in{next_, static_cast<size_t>(end_ - next_), 0};
    const size_t result = ZSTD_decompressStream(stream_.get(), out, &in);
    next_ += in.pos;
    if (ZSTD_isError(result) != 0) fail_damaged("zstd", ZSTD_getErrorName(result));
    has_frame_ = true;
    is_in_frame_ = result != 0;
    // A full output buffer may leave data in the decoder, which needs no more input.
    holds_output_ = is_in_frame_ && out->pos == out->size;
  }

  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  bool is_in_frame_ = false;
  bool has_frame_ = false;  // Any frame so far.
  bool holds_output_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  return std::make_unique<FileSource>(path);
}

std::unique_ptr<ByteSource> decompress_gzip(std::unique_ptr<ByteSource> compressed) {
  return std::make_unique<GzipSource>(std::move(compressed));
}

std::unique_ptr<ByteSource> decompress_zstd(std::unique_ptr<ByteSource> compressed) {
  return std::make_unique<ZstdSource>(std::move(compressed));
}

std::string lower_extension(const std::filesystem::path& path) {
  std::string text = path.extension().string();
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace tessera
