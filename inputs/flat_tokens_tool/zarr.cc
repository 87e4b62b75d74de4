// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool/zarr.h"

#include <blosc.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <span>

#include <fmt/ostream.h>
#include <zlib.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

// Decompressors of a chunk, which return its size. `into` is filled only if its size is correct.

size_t unpack_blosc(std::string_view packed, std::span<char> into, const std::string& where) {
  if (packed.size() < BLOSC_MIN_HEADER_LENGTH)
    fail("{}: {} bytes are too few for a blosc chunk", where, packed.size());
  size_t size = 0;
  if (blosc_cbuffer_validate(packed.data(), packed.size(), &size) < 0)
    fail("{}: the header of the blosc chunk is damaged: its sizes do not match the file", where);
  if (size != into.size()) return size;
  const int unpacked = blosc_decompress_ctx(packed.data(), into.data(), into.size(), 1);
  if (unpacked != static_cast<int>(into.size()))
    fail(
        "{}: blosc cannot decompress the chunk: it is damaged, or uses a codec that this "
        "library does not have",
        where);
  return size;
}

// zlib or gzip format.
size_t unpack_zlib(std::string_view packed, std::span<char> into, const std::string& where) {
  constexpr int kEitherWrapping = 32;
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + kEitherWrapping) != Z_OK)
    fail("{}: zlib initialisation failed", where);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  const int result = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (result != Z_STREAM_END)
    fail("{}: the zlib stream of the chunk is damaged or too long", where);
  return stream.total_out;
}

size_t unpack_zstd(std::string_view packed, std::span<char> into, const std::string& where) {
  const size_t size = ZSTD_decompress(into.data(), into.size(), packed.data(), packed.size());
  if (ZSTD_isError(size) != 0)
    fail("{}: the zstd frame of the chunk is damaged: {}", where, ZSTD_getErrorName(size));
  return size;
}

void unpack_zarr_chunk(ZarrCodec codec, std::string_view packed, std::span<char> into,
                       const std::string& where) {
  size_t size = packed.size();
  if (codec == ZarrCodec::kNone)
    std::copy_n(packed.begin(), std::min(size, into.size()), into.begin());
  if (codec == ZarrCodec::kBlosc) size = unpack_blosc(packed, into, where);
  if (codec == ZarrCodec::kZlib || codec == ZarrCodec::kGzip)
    size = unpack_zlib(packed, into, where);
  if (codec == ZarrCodec::kZstd) size = unpack_zstd(packed, into, where);
  if (size != into.size())
    fail("{}: the chunk holds {} bytes, expected {}", where, size, into.size());
}

namespace fs = std::filesystem;

constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr int64_t kLargestChunk = int64_t{1} << 29;  // Bytes.

struct ElementType {
  int64_t bytes = 0;
  bool is_signed = false;
};

// In numpy's notation: "<u4".
ElementType element_type(const Json& json) {
  const std::string& name = json.as_string();
  if (name.size() == 3 && (name[1] == 'u' || name[1] == 'i')) {
    const int64_t bytes = name[2] - '0';
    const bool is_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    if (is_size && (name[0] == '<' || (bytes == 1 && name[0] == '|')))
      return {bytes, name[1] == 'i'};
  }
  fail("{} is '{}', expected little-endian integers: <u4, <u8, <i4 or <i8", json.where(), name);
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
  return !name.empty() &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// One-dimensional integer arrays: chunks compressed by blosc, zlib, gzip or Zstandard, with an
// optional delta filter. Stores are untrusted: sizes are checked before allocation.
class ZarrArray {
 public:
  explicit ZarrArray(fs::path folder) : folder_(std::move(folder)) {
    const fs::path path = folder_ / ".zarray";
    if (!fs::exists(path))
      fail("{}: no such file: the store has no array '{}'{}", path.string(),
           folder_.filename().string(),
           fs::exists(folder_ / "zarr.json")
               ? " of format 2; it has one of format 3, which seqax does not write"
               : "");
    metadata_ = parse_zarr_metadata(read_file(path), path.string());
    check_completeness();
  }

  int64_t size() const { return metadata_.size; }
  int64_t num_chunks() const { return metadata_.num_chunks(); }

  // Returns the elements of a chunk, without padding.
  std::vector<uint64_t> read_chunk(int64_t number) const {
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
    // No codec expands chunks much.
    const int64_t most = 2 * metadata_.chunk_bytes() + (int64_t{1} << 16);
    if (static_cast<int64_t>(bytes) > most)
      fail("{}: has {} bytes, too many for a chunk of {}", path.string(), bytes,
           metadata_.chunk_bytes());
    std::vector<uint64_t> values =
        decode_zarr_chunk(metadata_, read_file(path, most), path.string());
    values.resize(size);
    return values;
  }

  // Returns the next elements, at most `most` and of one chunk; empty only at the end.
  std::span<const uint64_t> take(int64_t most) {
    if (used_ == chunk_.size()) {
      if (next_ == num_chunks()) return {};
      chunk_ = read_chunk(next_++);
      used_ = 0;
    }
    const size_t count = std::min(chunk_.size() - used_, static_cast<size_t>(most));
    used_ += count;
    return std::span(chunk_).subspan(used_ - count, count);
  }

 private:
  // Checks for missing chunks: they have the fill value, which is rarely intended for tokens. If
  // nearly all are missing, the store was not copied completely, or its metadata is wrong.
  void check_completeness() const {
    constexpr int64_t kMostMissing = 1000;
    int64_t stored = 0;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (is_chunk_name(entry.path().filename().string())) ++stored;
    const int64_t missing = num_chunks() - stored;
    if (missing > kMostMissing && missing > stored)
      fail("{}: only {} of {} chunks exist; copy the store again", folder_.string(), stored,
           num_chunks());
  }

  fs::path folder_;
  ZarrMetadata metadata_;
  std::vector<uint64_t> chunk_;  // The last that `take` has read,
  size_t used_ = 0;              // its elements that were taken,
  int64_t next_ = 0;             // and the number of the next.
};

constexpr int64_t kMostZarrIds = int64_t{1} << 31;

// Returns the groups of the store that hold tokens, `train` first. Error if the store has none.
std::vector<std::string> zarr_splits(const fs::path& store) {
  if (!fs::is_directory(store)) fail("{}: no such folder", store.string());
  std::vector<std::string> splits;
  for (const auto& entry : fs::directory_iterator(store))
    if (fs::exists(entry.path() / "encoded_tokens"))
      splits.push_back(entry.path().filename().string());
  if (splits.empty())
    fail("{}: not a zarr store of seqax's flat tokens: no group has 'encoded_tokens'",
         store.string());
  std::ranges::sort(splits, {},
                    [](const std::string& name) { return std::pair(name != "train", name); });
  return splits;
}

// Returns the max_token_id attribute of the split's group.
int64_t zarr_max_token_id(const fs::path& store, const std::string& split) {
  const fs::path path = store / split / ".zattrs";
  if (!fs::exists(path))
    fail("{}: no such file; it should hold the split's max_token_id", path.string());
  const Json id = parse_json(read_file(path), path.string()).at("max_token_id");
  if (id.as_integer() < 0 || id.as_integer() >= kMostZarrIds)
    fail("{} is {}, expected 0 to {}", id.where(), id.as_integer(), kMostZarrIds - 1);
  return id.as_integer();
}

struct ImportedSplit {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t empty = 0;  // Documents without tokens, skipped.
};

// Fills a split of `writer`, which has been begun. Error if start marks disagree with seq_starts,
// or ids with max_token_id.
class SplitImport {
 public:
  SplitImport(const fs::path& store, const std::string& split, FlatTokensWriter* writer)
      : where_((store / split).string()),
        tokens_(store / split / "encoded_tokens"),
        starts_(store / split / "seq_starts"),
        max_token_id_(zarr_max_token_id(store, split)),
        writer_(writer) {}

  ImportedSplit run() {
    check_sizes();
    int64_t number = 0;
    for (int64_t chunk = 0; chunk < starts_.num_chunks(); ++chunk)
      for (const uint64_t start : starts_.read_chunk(chunk)) take_start(number++, start);
    if (begin_ != tokens_.size())
      fail("{}: seq_starts ends at {}, but there are {} tokens", where_, begin_, tokens_.size());
    return imported_;
  }

 private:
  void check_sizes() const {
    if (tokens_.size() == 0) fail("{}: has no tokens", where_);
    if (starts_.size() < 2)
      fail("{}: seq_starts has {} entries; expected one for each document and one for the end",
           where_, starts_.size());
  }

  // Entry `number` ends the document before it.
  void take_start(int64_t number, uint64_t start) {
    if (number == 0) {
      if (start != 0) fail("{}: seq_starts[0] is {}; expected 0", where_, start);
      return;
    }
    if (start > static_cast<uint64_t>(tokens_.size()))
      fail("{}: seq_starts[{}] is {}, but there are {} tokens", where_, number, start,
           tokens_.size());
    const auto end = static_cast<int64_t>(start);
    if (end < begin_)
      fail("{}: seq_starts[{}] is {}, less than the {} before it", where_, number, end, begin_);
    copy_document(end);
  }

  void copy_document(int64_t end) {
    if (begin_ == end) ++imported_.empty;
    if (begin_ < end) ++imported_.documents;
    imported_.tokens += end - begin_;
    for (bool continues = false; begin_ < end; continues = true) {
      const std::vector<int32_t> ids = ids_of(tokens_.take(end - begin_), continues);
      if (continues) {
        writer_->extend_document(ids);
      } else {
        writer_->add_document(ids);
      }
      begin_ += static_cast<int64_t>(ids.size());
    }
  }

  std::vector<int32_t> ids_of(std::span<const uint64_t> encoded, bool continues) const {
    std::vector<int32_t> ids;
    ids.reserve(encoded.size());
    for (size_t i = 0; i < encoded.size(); ++i) {
      const bool begins = !continues && i == 0;
      const int64_t at = begin_ + static_cast<int64_t>(i);
      if (((encoded[i] & 1) != 0) != begins)
        fail("{}: token {} and seq_starts disagree on whether a document begins there", where_, at);
      const uint64_t id = encoded[i] >> 1;
      if (id > static_cast<uint64_t>(max_token_id_))
        fail("{}: token {} has id {}, beyond max_token_id {}", where_, at, id, max_token_id_);
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }

  std::string where_;
  ZarrArray tokens_;
  ZarrArray starts_;
  int64_t max_token_id_;
  FlatTokensWriter* writer_;
  int64_t begin_ = 0;  // Start of the next document.
  ImportedSplit imported_;
};

struct ImportZarr {
  static constexpr std::string_view kName = "import", kUsage = "import STORE --output=FILE";
  static constexpr std::string_view kAbout =
      "Converts seqax's flat tokens, a zarr store of format 2, to a flat-tokens file.";

  fs::path output;
  std::optional<fs::path> tokenizer;
  std::optional<int64_t> vocab_size;
  int64_t compression = 0;
  bool overwrite = false;
  FIELDS(About(output, "the file", {.unit = "FILE"}),
         About(tokenizer, "the tokenizer of the store, to embed in the file", {.unit = "FILE"}),
         About(vocab_size, "or its vocabulary size (default: max_token_id + 1)",
               {.min = 1, .max = kMostZarrIds}),
         About(compression, "deflate level", {.min = 0, .max = 9}),
         About(overwrite, "replace an output made by another tokenizer"))

  void run(const Paths& paths, const Printed& printed) const {
    if (output.empty()) throw UsageError("import needs --output=FILE");
    if (paths.size() != 1)
      throw UsageError(fmt::format("import needs one STORE, got {}", paths.size()));
    const fs::path& store = paths[0];
    const std::vector<std::string> splits = zarr_splits(store);
    int64_t least = 1;
    for (const std::string& split : splits)
      least = std::max(least, zarr_max_token_id(store, split) + 1);
    const TokenizerIdentity identity = find_identity(least);
    check_not_an_input(output, {tokenizer.value_or("")});
    if (!overwrite) check_output(output, identity);
    FlatTokensWriter writer(output, identity,
                            {.compression = static_cast<int>(compression),
                             .source = fs::absolute(store).lexically_normal().string()});
    for (const std::string& split : splits) {
      SplitImport import(store, split, &writer);
      writer.begin_split(split);
      const ImportedSplit imported = import.run();
      fmt::print(printed.out, "{}:{}: {} tokens in {} documents", output.string(), split,
                 imported.tokens, imported.documents);
      if (imported.empty > 0) fmt::print(printed.out, "; skipped: {} empty", imported.empty);
      fmt::print(printed.out, "\n");
    }
    writer.finish();
  }

 private:
  TokenizerIdentity find_identity(int64_t least) const {
    if (tokenizer && vocab_size)
      throw UsageError("--tokenizer and --vocab_size exclude each other");
    TokenizerIdentity identity = tokenizer ? identity_of(*make_tokenizer(tokenizer->string()))
                                           : unknown_tokenizer(vocab_size.value_or(least));
    if (identity.vocab_size < least)
      fail(
          "the store has ids up to {}, but the vocabulary of {} has {} ids; name the tokenizer "
          "that made the store",
          least - 1, tokenizer ? identity.name : "--vocab_size", identity.vocab_size);
    return identity;
  }
};

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

FlatTokensCommand import_command() { return flat_tokens_command<ImportZarr>(); }

}  // namespace tessera
