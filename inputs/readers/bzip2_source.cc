// SPDX-License-Identifier: Apache-2.0
// Decompresses bzip2 of any number of streams, by libbz2.
#include <bzlib.h>

#include <algorithm>
#include <memory>

#include "inputs/readers/compression.h"

namespace tessera {
namespace {

class Bzip2Source final : public CompressedSource {
 public:
  explicit Bzip2Source(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed), "bzip2") {}
  ~Bzip2Source() override { restart(); }

 private:
  size_t decompress(char* into, size_t size) override {
    constexpr size_t kMostAtOnce = 1 << 30;  // libbz2 counts in 32 bits.
    if (!is_open_ && BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) fail_memory();
    is_open_ = is_inside_ = has_begun_ = true;
    stream_.next_in = const_cast<char*>(next_);
    stream_.avail_in = static_cast<unsigned>(end_ - next_);
    stream_.next_out = into;
    stream_.avail_out = static_cast<unsigned>(std::min(size, kMostAtOnce));
    const int result = BZ2_bzDecompress(&stream_);
    next_ = stream_.next_in;
    if (result == BZ_MEM_ERROR) fail_memory();
    if (result != BZ_OK && result != BZ_STREAM_END) fail_damaged("wrong data or checksum");
    is_inside_ = result == BZ_OK;
    if (!is_inside_) restart();
    return static_cast<size_t>(stream_.next_out - into);
  }

  void restart() override {
    if (is_open_) BZ2_bzDecompressEnd(&stream_);
    is_open_ = false;
  }

  bz_stream stream_{};
  bool is_open_ = false;
};

const CompressionRegistrar kBzip2{{"bzip2", ".bz2", "1AY&SY", 4, decompress_as<Bzip2Source>}};

}  // namespace
}  // namespace tessera
