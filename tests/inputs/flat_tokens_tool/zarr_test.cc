// SPDX-License-Identifier: Apache-2.0
// Imports of seqax's zarr stores, written by the zarr library (tests/golden/zarr_stores.py), and of
// damaged metadata and chunks.
#include "inputs/flat_tokens_tool/zarr.h"

#include <filesystem>
#include <sstream>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

const fs::path kStores = TESSERA_SOURCE_DIR "/tests/golden/zarr";

std::vector<uint32_t> expected_tokens(int seed) {
  std::vector<uint32_t> tokens;
  for (int number = 0; number < 200; ++number)
    for (int at = 0; at < number * 37 % 23; ++at)
      tokens.push_back(encode_token((seed + number * 131 + at * at) % 5000 + 1, at == 0));
  return tokens;
}

std::vector<uint32_t> all_tokens(const fs::path& path, const std::string& split) {
  const FlatTokensReader reader(path, split);
  std::vector<uint32_t> tokens(static_cast<size_t>(reader.num_tokens()));
  reader.read(0, tokens);
  return tokens;
}

struct Result {
  int code = 0;
  std::string out;
  std::string errors;
};

Result import_store(const fs::path& store, const fs::path& output,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"import", store.string(), "--output=" + output.string()};
  words.insert(words.end(), more.begin(), more.end());
  std::ostringstream out;
  std::ostringstream errors;
  const int code = run_flat_tokens(words, out, errors);
  return {code, out.str(), errors.str()};
}

TEST_CASE("stores of every codec are imported") {
  const TemporaryDirectory directory;
  const std::string name = GENERATE("seqax", "blosc_zstd_shuffle", "blosc_lz4hc", "blosc_zlib",
                                    "blosc_blosclz", "zlib", "gzip", "zstd", "plain");
  const Result result = import_store(kStores / name, directory / "t.h5");
  CAPTURE(name, result.errors);
  REQUIRE(result.code == 0);
  REQUIRE((all_tokens(directory / "t.h5", "train") == expected_tokens(0)));
  // Every 23rd of 200 lengths is 0.
  REQUIRE_THAT(result.out, Contains(":train: 2186 tokens in 191 documents; skipped: 9 empty"));
  const FlatTokensReader reader(directory / "t.h5", "train");
  REQUIRE(reader.num_documents() == 191);
  REQUIRE(reader.vocab_size() == reader.max_token_id() + 1);
  if (name == "seqax")
    REQUIRE((all_tokens(directory / "t.h5", "validation") == expected_tokens(1)));
}

TEST_CASE("missing chunks hold the fill value") {
  const TemporaryDirectory directory;
  REQUIRE(import_store(kStores / "missing", directory / "t.h5").code == 0);
  std::vector<uint32_t> expected(3000);
  expected[0] = 1;
  expected[2999] = 14;
  REQUIRE((all_tokens(directory / "t.h5", "train") == expected));
}

TEST_CASE("a store's tokenizer is recorded, and must have its ids") {
  const TemporaryDirectory directory;
  REQUIRE(import_store(kStores / "seqax", directory / "t.h5", {"--vocab_size=32768"}).code == 0);
  REQUIRE(FlatTokensReader(directory / "t.h5", "train").vocab_size() == 32768);
  const Result small = import_store(kStores / "seqax", directory / "u.h5", {"--vocab_size=100"});
  REQUIRE(small.code == 1);
  REQUIRE_THAT(small.errors, Contains("name the tokenizer that made the store"));
  REQUIRE_THAT(import_store(kStores / "seqax", directory / "u.h5", {"--tokenizer=bytes"}).errors,
               Contains("the vocabulary of bytes has 257"));
  REQUIRE(!fs::exists(directory / "u.h5"));
}

// Imports a copy of the store with `path` replaced; "" removes it.
std::string refusal(const std::string& store, const std::string& path, const std::string& bytes) {
  const TemporaryDirectory directory;
  fs::copy(kStores / store, directory / "store", fs::copy_options::recursive);
  fs::remove(directory / "store" / path);
  if (!bytes.empty()) write_bytes(directory / "store" / path, bytes);
  const Result result = import_store(directory / "store", directory / "t.h5");
  REQUIRE(result.code == 1);
  REQUIRE(!fs::exists(directory / "t.h5"));
  return result.errors;
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("an import replaces other files only with --overwrite") {
  const TemporaryDirectory directory;
  const fs::path output = directory / "notes.txt";
  write_bytes(output, "not to be lost");
  const Result refused = import_store(kStores / "seqax", output);
  REQUIRE(refused.code == 2);
  REQUIRE_THAT(refused.errors, Contains("is not a token file") && Contains("--overwrite replaces"));
  REQUIRE(read_file(output) == "not to be lost");
  REQUIRE(import_store(kStores / "seqax", output, {"--overwrite"}).code == 0);
  REQUIRE(import_store(kStores / "seqax", output).code == 0);  // With an equal vocabulary size.
  REQUIRE_THAT(import_store(kStores / "seqax", output, {"--vocab_size=70000"}).errors,
               Contains("--overwrite replaces it"));
}

TEST_CASE("invalid metadata is refused with a message") {
  const std::string tokens = "train/encoded_tokens/.zarray";
  const std::string good = read_file(kStores / "seqax" / tokens);
  const auto why = [&](const std::string& from, const std::string& to) {
    return refusal("seqax", tokens, changed(good, from, to));
  };
  REQUIRE_THAT(why("2186", "900000000000000000"), Contains("shape[0] is 900000000000000000"));
  REQUIRE_THAT(why("2186", "1000000000000"), Contains("only 3 of 976562500 chunks exist"));
  REQUIRE_THAT(why("1024", "1000000000000"), Contains("chunks[0] is 1000000000000"));
  REQUIRE_THAT(why("1024", "0"), Contains("chunks[0] is 0"));
  REQUIRE_THAT(why("1024", "2048"), Contains("the chunk holds 4096 bytes, expected 8192"));
  REQUIRE_THAT(why("<u4", "<f4"), Contains("dtype is '<f4', expected little-endian integers"));
  REQUIRE_THAT(why("<u4", ">u4"), Contains("little-endian"));
  REQUIRE_THAT(why("\"zarr_format\": 2", "\"zarr_format\": 3"), Contains("zarr of format 3"));
  REQUIRE_THAT(why("\"blosc\"", "\"lz5\""), Contains("compressor.id is 'lz5'"));
  REQUIRE_THAT(refusal("seqax", tokens, "{"), Contains("not valid JSON"));
  REQUIRE_THAT(refusal("seqax", tokens, ""), Contains("the store has no array 'encoded_tokens'"));
  REQUIRE_THAT(refusal("seqax", "train/.zattrs", "{}"), Contains("lacks 'max_token_id'"));
  REQUIRE_THAT(refusal("seqax", "train/.zattrs", "{\"max_token_id\": 17}"),
               Contains("beyond max_token_id 17"));
  const TemporaryDirectory directory;
  REQUIRE_THAT(import_store(directory.path(), directory / "t.h5").errors,
               Contains("no group has 'encoded_tokens'"));
}

TEST_CASE("chunks that are damaged, missing or of other sizes are refused with a message") {
  const std::string chunk = "train/encoded_tokens/1";
  const std::string good = read_file(kStores / "seqax" / chunk);
  REQUIRE_THAT(refusal("seqax", chunk, good.substr(0, good.size() - 1)),
               Contains("encoded_tokens/1: ") && Contains("header of the blosc chunk is damaged"));
  REQUIRE_THAT(refusal("seqax", chunk, good.substr(0, 7)), Contains("too few for a blosc chunk"));
  REQUIRE_THAT(refusal("seqax", chunk, std::string(200000, 'x')), Contains("too many for a chunk"));
  std::string larger = good;
  larger[6] = 0x7f;  // The uncompressed size.
  REQUIRE_THAT(refusal("seqax", chunk, larger), Contains("bytes, expected 4096"));
  REQUIRE_THAT(refusal("plain", chunk, ""), Contains("the chunk is missing"));
  // Zeros are not document starts.
  REQUIRE_THAT(refusal("seqax", chunk, ""), Contains("seq_starts disagree"));
  REQUIRE_THAT(refusal("seqax", "train/seq_starts/3", ""), Contains("less than the"));
  REQUIRE_THAT(refusal("zlib", chunk, read_file(kStores / "zlib" / chunk).substr(0, 100)),
               Contains("zlib stream of the chunk is damaged"));
  REQUIRE_THAT(refusal("zstd", chunk, read_file(kStores / "zstd" / chunk).substr(0, 100)),
               Contains("zstd frame of the chunk is damaged"));
}

std::vector<std::string> metadata_seeds() {
  return {read_file(kStores / "seqax/train/seq_starts/.zarray"),
          read_file(kStores / "plain/train/encoded_tokens/.zarray")};
}

void fuzz_metadata(int64_t count) {
  const FuzzReport report = fuzz(
      "zarr_metadata", metadata_seeds(),
      [](std::string_view text) {
        const ZarrMetadata metadata = parse_zarr_metadata(text, ".zarray");
        if (metadata.num_chunks() < 0 || metadata.chunk_bytes() < 1 ||
            metadata.chunk_bytes() > int64_t{1} << 29)
          throw std::logic_error("sizes out of bounds");
      },
      count);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

// Small chunks, so that many can be tested.
void fuzz_chunks(int64_t count) {
  struct Kind {
    ZarrCodec codec;
    std::vector<std::string> seeds;
  };
  const auto chunk = [](const std::string& store) {
    return read_file(kStores / store / "train/seq_starts/0");
  };
  const std::vector<Kind> kinds = {
      {ZarrCodec::kBlosc,
       {chunk("seqax"), chunk("blosc_zstd_shuffle"), chunk("blosc_lz4hc"), chunk("blosc_zlib"),
        chunk("blosc_blosclz")}},
      {ZarrCodec::kZlib, {chunk("zlib"), chunk("gzip")}},
      {ZarrCodec::kZstd, {chunk("zstd")}},
      {ZarrCodec::kNone, {chunk("plain")}}};
  const std::vector<int64_t> shares = {count - 3 * (count / 5), count / 5, count / 5, count / 5};
  for (size_t i = 0; i < kinds.size(); ++i) {
    ZarrMetadata metadata;
    metadata.size = metadata.chunk = 64;
    metadata.element_bytes = 8;
    metadata.codec = kinds[i].codec;
    metadata.has_delta = true;
    const FuzzReport report = fuzz(
        "zarr_chunk", kinds[i].seeds,
        [&](std::string_view bytes) {
          // Exactly sized memory, so that a sanitizer detects reads past the end.
          const std::vector<char> exact(bytes.begin(), bytes.end());
          if (decode_zarr_chunk(metadata, {exact.data(), exact.size()}, "chunk").size() != 64)
            throw std::logic_error("another size");
        },
        shares[i]);
    REQUIRE(report.refused > 0);
    REQUIRE(report.refused < report.inputs);
  }
}

TEST_CASE("mutated zarr metadata and chunks are read or refused") {
  fuzz_metadata(kFastFuzz);
  fuzz_chunks(kFastFuzz);
}

TEST_CASE("a million mutated zarr metadata and chunks are read or refused", "[full]") {
  fuzz_metadata(kFullFuzz);
  fuzz_chunks(kFullFuzz);
}

}  // namespace
}  // namespace tessera
