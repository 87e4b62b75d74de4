// SPDX-License-Identifier: Apache-2.0
// Decompresses gzip of any number of members, by zlib.
#include <algorithm>
#include <memory>

#include <zlib.h>

#include "core/base/error.h"
#include "inputs/readers/compressed_source.h"
#include "inputs/readers/compression.h"

namespace tessera {
namespace {

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

const CompressionRegistrar kGzip{
    {"gzip", ".gz", "\x1f\x8b\x08", 0, [](std::unique_ptr<ByteSource> compressed) {
       return std::unique_ptr<ByteSource>(std::make_unique<GzipSource>(std::move(compressed)));
     }}};

}  // namespace
}  // namespace tessera
