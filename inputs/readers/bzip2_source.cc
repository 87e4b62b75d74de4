// SPDX-License-Identifier: Apache-2.0
// Decompresses bzip2 of any number of streams, by libbz2.
#include <bzlib.h>

#include <algorithm>
#include <memory>

#include "core/base/error.h"
#include "inputs/readers/compressed_source.h"
#include "inputs/readers/compression.h"

namespace tessera {
namespace {

class Bzip2Source final : public CompressedSource {
 public:
  explicit Bzip2Source(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed)) {}
  ~Bzip2Source() override { restart(); }
  Bzip2Source(const Bzip2Source&) = delete;
  Bzip2Source& operator=(const Bzip2Source&) = delete;

 protected:
  size_t decompress(char* into, size_t size) override {
    constexpr size_t kMostAtOnce = 1 << 30;  // libbz2 counts in 32 bits.
    const auto most = static_cast<unsigned>(std::min(size, kMostAtOnce));
    stream_.next_out = into;
    stream_.avail_out = most;
    while (stream_.avail_out == most) {
      if (next_ == end_ && !refill()) {
        if (is_in_stream_ || !has_stream_) fail_truncated("bzip2");
        return 0;
      }
      decompress_some();
    }
    return most - stream_.avail_out;
  }

  void restart() override {
    if (is_in_stream_) BZ2_bzDecompressEnd(&stream_);
    is_in_stream_ = has_stream_ = false;
  }

 private:
  void decompress_some() {
    if (!is_in_stream_ && BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK)
      fail("{}: out of memory for decompression", where());
    is_in_stream_ = has_stream_ = true;
    stream_.next_in = const_cast<char*>(next_);
    stream_.avail_in = static_cast<unsigned>(end_ - next_);
    const int result = BZ2_bzDecompress(&stream_);
    next_ = stream_.next_in;
    if (result == BZ_STREAM_END) {
      BZ2_bzDecompressEnd(&stream_);
      is_in_stream_ = false;
    } else if (result == BZ_MEM_ERROR) {
      fail("{}: out of memory for decompression", where());
    } else if (result != BZ_OK) {
      fail_damaged("bzip2", "wrong data or checksum");
    }
  }

  bz_stream stream_{};
  bool is_in_stream_ = false;
  bool has_stream_ = false;  // Any stream so far.
};

const CompressionRegistrar kBzip2{
    {"bzip2", ".bz2", "1AY&SY", 4, [](std::unique_ptr<ByteSource> compressed) {
       return std::unique_ptr<ByteSource>(std::make_unique<Bzip2Source>(std::move(compressed)));
     }}};

}  // namespace
}  // namespace tessera
