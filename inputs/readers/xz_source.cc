// SPDX-License-Identifier: Apache-2.0
// Decompresses xz of any number of streams, by liblzma.
#include <lzma.h>

#include <cstdint>
#include <memory>

#include "inputs/readers/compression.h"

namespace tessera {
namespace {

class XzSource final : public CompressedSource {
 public:
  explicit XzSource(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed), "xz") {
    restart();
  }
  ~XzSource() override { lzma_end(&stream_); }

 private:
  // At most the memory of xz -9 and its buffers.
  static constexpr uint64_t kMostMemory = uint64_t{128} << 20;

  size_t decompress(char* into, size_t size) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(next_);
    stream_.avail_in = static_cast<size_t>(end_ - next_);
    stream_.next_out = reinterpret_cast<uint8_t*>(into);
    stream_.avail_out = size;
    const bool has_bytes = next_ != end_;
    const lzma_ret result = lzma_code(&stream_, has_bytes ? LZMA_RUN : LZMA_FINISH);
    next_ = reinterpret_cast<const char*>(stream_.next_in);
    if (result == LZMA_STREAM_END) {
      holds_output_ = false;
      has_begun_ = true;
    } else if (result == LZMA_BUF_ERROR && !has_bytes) {
      fail_truncated();
    } else if (result == LZMA_MEMLIMIT_ERROR) {
      fail_damaged("it needs more than 128 MiB of memory");
    } else if (result != LZMA_OK && result != LZMA_BUF_ERROR) {
      fail_damaged("wrong data or checksum");
    }
    return size - stream_.avail_out;
  }

  void restart() override {
    holds_output_ = true;  // Until the decompressor has been told of the end of the file.
    if (lzma_stream_decoder(&stream_, kMostMemory, LZMA_CONCATENATED) != LZMA_OK) fail_memory();
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

const CompressionRegistrar kXz{{"xz", ".xz", {"\xfd\x37zXZ\0", 6}, 0, decompress_as<XzSource>}};

}  // namespace
}  // namespace tessera
