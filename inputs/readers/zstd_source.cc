// SPDX-License-Identifier: Apache-2.0
// Decompresses Zstandard of any number of frames, with windows of at most 2 GiB, by libzstd.
#include <zstd.h>
#include <zstd_errors.h>

#include <memory>

#include "inputs/readers/compression.h"

namespace tessera {
namespace {

class ZstdSource final : public CompressedSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> compressed)
      : CompressedSource(std::move(compressed), "zstd"),
        stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (stream_ == nullptr) fail_memory();
    // For `zstd --long=31`. A window takes memory only as text fills it.
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, 31);
  }

 private:
  size_t decompress(char* into, size_t size) override {
    ZSTD_inBuffer in{next_, static_cast<size_t>(end_ - next_), 0};
    ZSTD_outBuffer out{into, size, 0};
    const size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
    next_ += in.pos;
    if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) fail_memory();
    if (ZSTD_isError(result) != 0) fail_damaged(ZSTD_getErrorName(result));
    has_begun_ = true;
    is_inside_ = result != 0;
    // A full output buffer may leave data in the decoder.
    holds_output_ = is_inside_ && out.pos == out.size;
    return out.pos;
  }

  void restart() override { ZSTD_DCtx_reset(stream_.get(), ZSTD_reset_session_only); }

  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
};

const CompressionRegistrar kZstd{
    {"Zstandard", ".zst", "\x28\xb5\x2f\xfd", 0, decompress_as<ZstdSource>}};

}  // namespace
}  // namespace tessera
