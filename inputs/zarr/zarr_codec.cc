// SPDX-License-Identifier: Apache-2.0
#include "inputs/zarr/zarr_codec.h"

#include <blosc.h>
#include <zstd.h>

#include <cstring>

#include <zlib.h>

#include "core/base/error.h"

namespace tessera {
namespace {

[[noreturn]] void fail_size(size_t size, size_t expected, const std::string& where) {
  fail("{}: the chunk holds {} bytes, expected {}", where, size, expected);
}

void unpack_blosc(std::string_view packed, std::span<char> into, const std::string& where) {
  if (packed.size() < BLOSC_MIN_HEADER_LENGTH)
    fail("{}: {} bytes are no blosc chunk", where, packed.size());
  size_t size = 0;
  if (blosc_cbuffer_validate(packed.data(), packed.size(), &size) < 0)
    fail("{}: the header of the blosc chunk is broken: it tells other sizes than the file has",
         where);
  if (size != into.size()) fail_size(size, into.size(), where);
  const int unpacked = blosc_decompress_ctx(packed.data(), into.data(), into.size(), 1);
  if (unpacked != static_cast<int>(into.size()))
    fail(
        "{}: blosc cannot decompress the chunk: it is broken, or packed by a codec that this "
        "library lacks",
        where);
}

// Both of zlib's wrappings.
void unpack_zlib(std::string_view packed, std::span<char> into, const std::string& where) {
  constexpr int kEitherWrapping = 32;
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + kEitherWrapping) != Z_OK)
    fail("{}: zlib cannot start", where);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  const int result = inflate(&stream, Z_FINISH);
  const size_t size = stream.total_out;
  inflateEnd(&stream);
  if (result != Z_STREAM_END) fail("{}: the zlib stream of the chunk is broken or too long", where);
  if (size != into.size()) fail_size(size, into.size(), where);
}

void unpack_zstd(std::string_view packed, std::span<char> into, const std::string& where) {
  const size_t size = ZSTD_decompress(into.data(), into.size(), packed.data(), packed.size());
  if (ZSTD_isError(size) != 0)
    fail("{}: the zstd frame of the chunk is broken: {}", where, ZSTD_getErrorName(size));
  if (size != into.size()) fail_size(size, into.size(), where);
}

}  // namespace

void unpack_zarr_chunk(ZarrCodec codec, std::string_view packed, std::span<char> into,
                       const std::string& where) {
  switch (codec) {
    case ZarrCodec::kNone:
      if (packed.size() != into.size()) fail_size(packed.size(), into.size(), where);
      std::memcpy(into.data(), packed.data(), packed.size());
      return;
    case ZarrCodec::kBlosc:
      return unpack_blosc(packed, into, where);
    case ZarrCodec::kZlib:
    case ZarrCodec::kGzip:
      return unpack_zlib(packed, into, where);
    case ZarrCodec::kZstd:
      return unpack_zstd(packed, into, where);
  }
}

}  // namespace tessera
