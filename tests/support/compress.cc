// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compress.h"

#include <zstd.h>

#include <zlib.h>

#include "core/base/error.h"

namespace tessera {

std::string gzip(std::string_view bytes) {
  constexpr int kGzip = 16;
  z_stream stream{};
  CHECK(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(std::string_view bytes, int window_log) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string packed(ZSTD_compressBound(bytes.size()) + 64, '\0');
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  // The compressor knows the size, which limits the window, if all bytes come with the end.
  if (window_log > 0) CHECK(ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue) == 0);
  CHECK(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) == 0);
  ZSTD_freeCCtx(context);
  packed.resize(out.pos);
  return packed;
}

}  // namespace tessera
