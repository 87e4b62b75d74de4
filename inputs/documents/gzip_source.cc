// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <zlib.h>

#include "core/base/error.h"
#include "inputs/documents/packed_source.h"

namespace tessera {
namespace {

class GzipSource final : public PackedSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> packed) : PackedSource(std::move(packed)) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK)
      fail("{}: zlib cannot start", where());
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

 protected:
  size_t unpack(char* into, size_t size) override {
    constexpr size_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits.
    stream_.next_out = reinterpret_cast<Bytef*>(into);
    stream_.avail_out = static_cast<uInt>(std::min(size, kMostAtOnce));
    while (stream_.next_out == reinterpret_cast<Bytef*>(into)) {
      if (next_ == end_ && !refill()) {
        if (is_in_member_ || !has_member_)
          fail(
              "{}: the gzip stream is cut short, after {} bytes of text; copy or download it again",
              where(), position());
        return 0;
      }
      if (is_in_member_ || begin_member()) inflate_some();
    }
    return static_cast<size_t>(reinterpret_cast<char*>(stream_.next_out) - into);
  }

  void begin_again() override {
    inflateReset(&stream_);
    is_in_member_ = has_member_ = false;
  }

 private:
  // Tapes and block devices fill up the end with zeros, as gzip itself allows.
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
      fail("{}: no memory is left to decompress it", where());
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail("{}: not a sound gzip stream, after {} bytes of text: {}", where(), position(),
           stream_.msg == nullptr ? "broken" : stream_.msg);
    }
  }

  z_stream stream_{};
  bool is_in_member_ = false;
  bool has_member_ = false;  // Any, so far.
};

}  // namespace

std::unique_ptr<ByteSource> decompress_gzip(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<GzipSource>(std::move(packed));
}

}  // namespace tessera
