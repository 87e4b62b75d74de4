// SPDX-License-Identifier: Apache-2.0
// Decompresses Zstandard of any number of frames, with windows of at most 128 MiB, by libzstd.
#include <zstd.h>

#include <memory>

#include "core/base/error.h"
#include "inputs/readers/compressed_source.h"
#include "inputs/readers/compression.h"

namespace tessera {
namespace {

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

const CompressionRegistrar kZstd{
    {"Zstandard", ".zst", "\x28\xb5\x2f\xfd", 0, [](std::unique_ptr<ByteSource> compressed) {
       return std::unique_ptr<ByteSource>(std::make_unique<ZstdSource>(std::move(compressed)));
     }}};

}  // namespace
}  // namespace tessera
