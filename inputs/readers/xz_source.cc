// SPDX-License-Identifier: Apache-2.0
// Decompresses xz of any number of streams, by liblzma.
#include <lzma.h>

#include <cstdint>
#include <memory>

#include "core/base/error.h"
#include "inputs/readers/compressed_source.h"
#include "inputs/readers/compression.h"

namespace tessera {
namespace {

class XzSource final : public CompressedSource {
 public:
  explicit XzSource(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed)) {
    start();
  }
  ~XzSource() override { lzma_end(&stream_); }
  XzSource(const XzSource&) = delete;
  XzSource& operator=(const XzSource&) = delete;

 protected:
  size_t decompress(char* into, size_t size) override {
    stream_.next_out = reinterpret_cast<uint8_t*>(into);
    stream_.avail_out = size;
    while (stream_.avail_out == size && !is_at_end_) decompress_some();
    return size - stream_.avail_out;
  }

  void restart() override { start(); }

 private:
  // At most the memory of xz -9 and its buffers.
  static constexpr uint64_t kMostMemory = uint64_t{128} << 20;

  void start() {
    is_at_end_ = false;
    if (lzma_stream_decoder(&stream_, kMostMemory, LZMA_CONCATENATED) != LZMA_OK)
      fail("{}: out of memory for decompression", where());
  }

  void decompress_some() {
    const bool has_input = next_ != end_ || refill();
    stream_.next_in = reinterpret_cast<const uint8_t*>(next_);
    stream_.avail_in = has_input ? static_cast<size_t>(end_ - next_) : 0;
    const lzma_ret result = lzma_code(&stream_, has_input ? LZMA_RUN : LZMA_FINISH);
    next_ = reinterpret_cast<const char*>(stream_.next_in);
    if (result == LZMA_STREAM_END) {
      is_at_end_ = true;
    } else if (result == LZMA_BUF_ERROR && !has_input) {
      fail_truncated("xz");
    } else if (result == LZMA_MEMLIMIT_ERROR) {
      fail_damaged("xz", "it needs more than 128 MiB of memory");
    } else if (result != LZMA_OK && result != LZMA_BUF_ERROR) {
      fail_damaged("xz", "wrong data or checksum");
    }
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool is_at_end_ = false;
};

const CompressionRegistrar kXz{
    {"xz", ".xz", {"\xfd\x37zXZ\0", 6}, 0, [](std::unique_ptr<ByteSource> compressed) {
       return std::unique_ptr<ByteSource>(std::make_unique<XzSource>(std::move(compressed)));
     }}};

}  // namespace
}  // namespace tessera
