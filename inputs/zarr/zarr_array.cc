// SPDX-License-Identifier: Apache-2.0
#include "inputs/zarr/zarr_array.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/zarr/zarr_codec.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr int64_t kLargestChunk = int64_t{1} << 29;  // Bytes.

struct ElementType {
  int64_t bytes = 0;
  bool is_signed = false;
};

// numpy's names: "<u4".
ElementType element_type(const Json& json) {
  const std::string& name = json.as_string();
  if (name.size() == 3 && (name[1] == 'u' || name[1] == 'i')) {
    const int64_t bytes = name[2] - '0';
    const bool is_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    if (is_size && (name[0] == '<' || (bytes == 1 && name[0] == '|')))
      return {bytes, name[1] == 'i'};
  }
  fail("{} is '{}', expected whole numbers, little-endian: <u4, <u8, <i4 or <i8", json.where(),
       name);
}

int64_t one_dimension(const Json& json, int64_t least, int64_t most) {
  const JsonArray& sizes = json.as_array();
  if (sizes.size() != 1) fail("{} has {} dimensions, expected one", json.where(), sizes.size());
  const int64_t size = sizes[0].as_integer();
  if (size < least || size > most)
    fail("{} is {}, expected {} to {}", sizes[0].where(), size, least, most);
  return size;
}

ZarrCodec codec_of(const Json& json) {
  if (json.is_null()) return ZarrCodec::kNone;
  const std::string& id = json.at("id").as_string();
  if (id == "blosc") return ZarrCodec::kBlosc;
  if (id == "zlib") return ZarrCodec::kZlib;
  if (id == "gzip") return ZarrCodec::kGzip;
  if (id == "zstd") return ZarrCodec::kZstd;
  fail("{} is '{}'; blosc, zlib, gzip and zstd are read", json.at("id").where(), id);
}

bool has_delta(const Json& filters, const ZarrMetadata& metadata) {
  if (filters.is_null() || filters.as_array().empty()) return false;
  for (const Json& filter : filters.as_array()) {
    const std::string& id = filter.at("id").as_string();
    if (id != "delta" || filters.as_array().size() > 1)
      fail("{} is '{}'; a single filter 'delta' is read", filter.where(), id);
    for (const char* type : {"dtype", "astype"}) {
      const Json* const named = filter.find(type);
      if (named != nullptr && element_type(*named).bytes != metadata.element_bytes)
        fail("{} is {}, which has another size than the array's elements", named->where(),
             named->as_string());
    }
  }
  return true;
}

std::optional<uint64_t> fill_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const int64_t value = json.as_integer();
  if (value < 0) fail("{} is {}, expected 0 or more", json.where(), value);
  return static_cast<uint64_t>(value);
}

uint64_t load(const char* bytes, int64_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(size));
  return value;
}

bool is_chunk_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

ZarrMetadata parse_zarr_metadata(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  if (json.at("zarr_format").as_integer() != 2)
    fail("{}: zarr of format {}; format 2 is read", where, json.at("zarr_format").as_integer());
  ZarrMetadata metadata;
  const ElementType type = element_type(json.at("dtype"));
  metadata.element_bytes = type.bytes;
  metadata.is_signed = type.is_signed;
  metadata.size = one_dimension(json.at("shape"), 0, kMostElements);
  metadata.chunk = one_dimension(json.at("chunks"), 1, kLargestChunk / type.bytes);
  metadata.codec = codec_of(json.at("compressor"));
  metadata.has_delta = has_delta(json.at("filters"), metadata);
  metadata.fill_value = fill_of(json.at("fill_value"));
  return metadata;
}

std::vector<uint64_t> decode_zarr_chunk(const ZarrMetadata& metadata, std::string_view bytes,
                                        const std::string& where) {
  std::string unpacked(static_cast<size_t>(metadata.chunk_bytes()), '\0');
  unpack_zarr_chunk(metadata.codec, bytes, unpacked, where);
  std::vector<uint64_t> values(static_cast<size_t>(metadata.chunk));
  const int64_t width = metadata.element_bytes;
  const uint64_t mask = width == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * width)) - 1;
  const uint64_t sign = metadata.is_signed ? uint64_t{1} << (8 * width - 1) : 0;
  uint64_t before = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t value = load(unpacked.data() + i * static_cast<size_t>(width), width);
    if (metadata.has_delta) value = before = (before + value) & mask;
    if ((value & sign) != 0) fail("{}: element {} of the chunk is less than 0", where, i);
    values[i] = value;
  }
  return values;
}

ZarrArray::ZarrArray(fs::path folder) : folder_(std::move(folder)) {
  const fs::path path = folder_ / ".zarray";
  if (!fs::exists(path))
    fail("{}: not there: the store has no array '{}'{}", path.string(), folder_.filename().string(),
         fs::exists(folder_ / "zarr.json") ? " of format 2, but one of format 3, which seqax does "
                                             "not write"
                                           : "");
  metadata_ = parse_zarr_metadata(read_file(path), path.string());
  check_completeness();
}

// Chunks that are not stored hold the fill value, which of tokens is seldom meant: what lacks
// nearly all of them was not copied whole, or claims to be larger than it is.
void ZarrArray::check_completeness() const {
  constexpr int64_t kMostMissing = 1000;
  int64_t stored = 0;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (is_chunk_name(entry.path().filename().string())) ++stored;
  const int64_t missing = num_chunks() - stored;
  if (missing > kMostMissing && missing > stored)
    fail("{}: only {} of {} chunks are there; copy the store again", folder_.string(), stored,
         num_chunks());
}

std::vector<uint64_t> ZarrArray::read_chunk(int64_t number) const {
  CHECK(number >= 0 && number < num_chunks());
  const auto size =
      static_cast<size_t>(std::min(metadata_.chunk, metadata_.size - number * metadata_.chunk));
  const fs::path path = folder_ / std::to_string(number);
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    if (!metadata_.fill_value)
      fail("{}: the chunk is missing, and the array has no fill value", path.string());
    return std::vector<uint64_t>(size, *metadata_.fill_value);
  }
  if (error) fail("{}: cannot be read: {}", path.string(), error.message());
  // No codec makes chunks much longer.
  const int64_t most = 2 * metadata_.chunk_bytes() + (int64_t{1} << 16);
  if (static_cast<int64_t>(bytes) > most)
    fail("{}: has {} bytes, too many for a chunk of {}", path.string(), bytes,
         metadata_.chunk_bytes());
  std::vector<uint64_t> values = decode_zarr_chunk(metadata_, read_file(path, most), path.string());
  values.resize(size);
  return values;
}

}  // namespace tessera
