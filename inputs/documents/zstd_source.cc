// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include "core/base/error.h"
#include "inputs/documents/packed_source.h"

namespace tessera {
namespace {

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

class ZstdSource final : public PackedSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> packed)
      : PackedSource(std::move(packed)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail("{}: no memory is left to decompress it", where());
  }

 protected:
  size_t unpack(char* into, size_t size) override {
    ZSTD_outBuffer out{into, size, 0};
    while (out.pos == 0) {
      if (next_ == end_ && !holds_output_ && !refill()) {
        if (is_in_frame_ || !has_frame_)
          fail(
              "{}: the zstd stream is cut short, after {} bytes of text; copy or download it "
              "again",
              where(), position());
        return 0;
      }
      decompress_some(&out);
    }
    return out.pos;
  }

  void begin_again() override {
    ZSTD_DCtx_reset(stream_.get(), ZSTD_reset_session_only);
    is_in_frame_ = has_frame_ = holds_output_ = false;
  }

 private:
  void decompress_some(ZSTD_outBuffer* out) {
    ZSTD_inBuffer in{next_, static_cast<size_t>(end_ - next_), 0};
    const size_t result = ZSTD_decompressStream(stream_.get(), out, &in);
    next_ += in.pos;
    if (ZSTD_isError(result) != 0)
      fail("{}: not a sound zstd stream, after {} bytes of text: {}", where(), position(),
           ZSTD_getErrorName(result));
    has_frame_ = true;
    is_in_frame_ = result != 0;
    // A full buffer may have left some behind, for which no more packed bytes are needed.
    holds_output_ = is_in_frame_ && out->pos == out->size;
  }

  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  bool is_in_frame_ = false;
  bool has_frame_ = false;  // Any, so far.
  bool holds_output_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> decompress_zstd(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<ZstdSource>(std::move(packed));
}

}  // namespace tessera
