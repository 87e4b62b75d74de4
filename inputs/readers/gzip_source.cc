// SPDX-License-Identifier: Apache-2.0
// Decompresses gzip of any number of members, by zlib.
#include <algorithm>
#include <memory>

#include <zlib.h>

#include "core/base/error.h"
#include "inputs/readers/compression.h"

namespace tessera {
namespace {

class GzipSource final : public CompressedSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed), "gzip") {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK)
      fail("{}: zlib initialisation failed", where());
  }
  ~GzipSource() override { inflateEnd(&stream_); }

 private:
  size_t decompress(char* into, size_t size) override {
    constexpr size_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits.
    if (!is_inside_ && !begin_member()) return 0;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next_));
    stream_.avail_in = static_cast<uInt>(end_ - next_);
    stream_.next_out = reinterpret_cast<Bytef*>(into);
    stream_.avail_out = static_cast<uInt>(std::min(size, kMostAtOnce));
    const int result = inflate(&stream_, Z_NO_FLUSH);
    next_ = reinterpret_cast<const char*>(stream_.next_in);
    if (result == Z_STREAM_END) {
      is_inside_ = false;
    } else if (result == Z_MEM_ERROR) {
      fail_memory();
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail_damaged(stream_.msg == nullptr ? "unknown error" : stream_.msg);
    }
    return static_cast<size_t>(reinterpret_cast<char*>(stream_.next_out) - into);
  }

  void restart() override {}  // begin_member() does.

  // Begins a member. Zeros may follow the last: gzip allows them for tapes and block devices.
  bool begin_member() {
    if (has_begun_) next_ = std::find_if(next_, end_, [](char c) { return c != '\0'; });
    if (next_ == end_) return false;
    inflateReset(&stream_);
    is_inside_ = has_begun_ = true;
    return true;
  }

  z_stream stream_{};
};

const CompressionRegistrar kGzip{{"gzip", ".gz", "\x1f\x8b\x08", 0, decompress_as<GzipSource>}};

}  // namespace
}  // namespace tessera
