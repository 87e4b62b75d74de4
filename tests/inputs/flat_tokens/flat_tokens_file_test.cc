// SPDX-License-Identifier: Apache-2.0
// Flat-tokens files: round trips, files of other programs, and errors for damaged files.
#include "inputs/flat_tokens/flat_tokens_file.h"

#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Documents = std::vector<std::vector<int32_t>>;

void write(const std::filesystem::path& path, const Documents& documents, int compression = 0) {
  FlatTokensWriter writer(path, *make_tokenizer("bytes"),
                          {.compression = compression, .source = "a test"});
  writer.begin_split("train");
  for (const auto& document : documents) writer.add_document(document);
  writer.finish();
}

std::vector<uint32_t> read_all(const FlatTokensReader& reader) {
  std::vector<uint32_t> encoded(static_cast<size_t>(reader.num_tokens()));
  reader.read(0, encoded);
  return encoded;
}

TEST_CASE("the reader reads what the writer wrote") {
  const TemporaryDirectory directory;
  const int compression = GENERATE(0, 4);
  // Longer than a chunk, so that the file grows more than once; the empty document is skipped.
  std::vector<int32_t> large(200000);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<int32_t>(1 + i % 255);
  write(directory / "t.h5", {{5, 6, 7}, {}, large, {9}}, compression);

  const FlatTokensReader reader(directory / "t.h5", "train");
  REQUIRE(reader.num_documents() == 3);
  REQUIRE(reader.num_tokens() == 200004);
  REQUIRE(reader.max_token_id() == 255);
  REQUIRE(reader.vocab_size() == 257);
  REQUIRE(reader.tokenizer_name() == "bytes");
  REQUIRE(reader.source() == "a test");
  std::vector<uint64_t> starts(4);
  reader.read_starts(0, starts);
  REQUIRE(starts == std::vector<uint64_t>{0, 3, 200003, 200004});
  const std::vector<uint32_t> encoded = read_all(reader);
  REQUIRE(encoded[0] == encode_token(5, true));
  REQUIRE(encoded[2] == encode_token(7, false));
  REQUIRE(encoded[200003] == encode_token(9, true));
  for (size_t i = 0; i < large.size(); ++i)
    if (encoded[3 + i] != encode_token(large[i], i == 0)) FAIL("token " << i);
  // A read across a chunk boundary.
  std::vector<uint32_t> part(1000);
  reader.read(65000, part);
  REQUIRE(std::equal(part.begin(), part.end(), encoded.begin() + 65000));
}

TEST_CASE("a file contains its tokenizer, or none") {
  const TemporaryDirectory directory;
  write(directory / "t.h5", {{1, 2}});
  const FlatTokensReader reader(directory / "t.h5", "train");
  REQUIRE(tokenizer_of_definition(reader.tokenizer_name(), reader.tokenizer_definition())
              ->fingerprint() == reader.tokenizer_fingerprint());
  std::string large(300000, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i % 251);
  for (const std::string& definition : {std::string(), std::string("d"), large}) {
    FlatTokensWriter writer(directory / "t.h5",
                            TokenizerIdentity{"mine", "mine-1", definition, 10});
    writer.begin_split("train");
    writer.add_document(std::vector<int32_t>{9});
    writer.finish();
    const FlatTokensReader again(directory / "t.h5", "train");
    REQUIRE(again.tokenizer_definition() == definition);
    REQUIRE(again.vocab_size() == 10);
  }
}

TEST_CASE("a tokenizer definition of the wrong type is refused") {
  const TemporaryDirectory directory;
  Hdf5File file = Hdf5File::create(directory / "t.h5");
  const std::vector<uint32_t> tokens = {3, 4};
  file.create_dataset("train/encoded_tokens", StoredType::kU32, {2})
      .write(std::as_bytes(std::span(tokens)));
  file.create_dataset("tokenizer", StoredType::kU32, {2}).write(std::as_bytes(std::span(tokens)));
  const std::vector<uint64_t> starts = {0, 2};
  file.create_dataset("train/seq_starts", StoredType::kU64, {2})
      .write(std::as_bytes(std::span(starts)));
  file.set_attribute("train", "format_version", int64_t{1});
  file.set_attribute("train", "max_token_id", int64_t{2});
  file.set_attribute("train", "vocab_size", int64_t{3});
  file.set_attribute("train", "tokenizer", "x");
  file.set_attribute("train", "tokenizer_fingerprint", "x");
  file.close();
  const FlatTokensReader reader(directory / "t.h5", "train");
  REQUIRE_THROWS_WITH(reader.tokenizer_definition(), Contains("'/tokenizer' is u32"));
}

TEST_CASE("an unfinished file is removed") {
  const TemporaryDirectory directory;
  {
    FlatTokensWriter writer(directory / "t.h5", *make_tokenizer("bytes"));
    writer.begin_split("train");
    writer.add_document(std::vector<int32_t>{1, 2});
  }
  REQUIRE(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("a fingerprint identifies data, not files") {
  const TemporaryDirectory directory;
  write(directory / "a.h5", {{1, 2, 3}});
  write(directory / "b.h5", {{1, 2, 3}}, 9);
  write(directory / "c.h5", {{1, 2, 4}});
  const auto fingerprint = [&](const char* name) {
    return FlatTokensReader(directory / name, "train").fingerprint();
  };
  REQUIRE(fingerprint("a.h5") == fingerprint("b.h5"));
  REQUIRE(fingerprint("a.h5") != fingerprint("c.h5"));
}

// A file as another program might write it, with one change.
struct Foreign {
  std::vector<uint32_t> tokens = {encode_token(3, true), encode_token(4, false),
                                  encode_token(5, true)};
  std::vector<uint64_t> starts = {0, 2, 3};
  int64_t max_token_id = 5;
  int64_t vocab_size = 10;
  int64_t version = 1;
  std::string elsewhere;  // The file that has the tokens, by a virtual dataset.
};

void write_foreign(const std::filesystem::path& path, const Foreign& foreign) {
  Hdf5File file = Hdf5File::create(path);
  const auto size = static_cast<int64_t>(foreign.tokens.size());
  if (foreign.elsewhere.empty())
    file.create_dataset("train/encoded_tokens", StoredType::kU32, {size})
        .write(std::as_bytes(std::span(foreign.tokens)));
  else
    file.create_virtual("train/encoded_tokens", StoredType::kU32, {size},
                        {{Region::whole({size}), foreign.elsewhere, "tokens"}});
  file.create_dataset("train/seq_starts", StoredType::kU64,
                      {static_cast<int64_t>(foreign.starts.size())})
      .write(std::as_bytes(std::span(foreign.starts)));
  file.set_attribute("train", "format_version", foreign.version);
  file.set_attribute("train", "max_token_id", foreign.max_token_id);
  file.set_attribute("train", "vocab_size", foreign.vocab_size);
  file.set_attribute("train", "tokenizer", "other");
  file.set_attribute("train", "tokenizer_fingerprint", "xyz");
  file.close();
}

TEST_CASE("a file of another program is read, and each defect is reported") {
  const TemporaryDirectory directory;
  const auto path = directory / "t.h5";
  const auto opening = [&](const std::function<void(Foreign&)>& change) {
    Foreign foreign;
    change(foreign);
    write_foreign(path, foreign);
    const FlatTokensReader reader(path, "train");
    read_all(reader);
  };
  REQUIRE_NOTHROW(opening([](Foreign&) {}));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) { f.version = 2; }),
                      Contains("format 2") && Contains("reads format 1"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) { f.max_token_id = 4; }),
                      Contains("token 2 has id 5") && Contains("max_token_id 4"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) { f.vocab_size = 5; }),
                      Contains("max_token_id 5 is not below vocab_size 5"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) {
                        f.starts = {0, 3, 2, 3};
                      }),
                      Contains("seq_starts[2] is 2, less than the 3 before it"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) {
                        f.starts = {1, 2, 3};
                      }),
                      Contains("seq_starts[0] is 1; expected 0"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) {
                        f.starts = {0, 2, 4};
                      }),
                      Contains("seq_starts ends at 4, but there are 3 tokens"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) { f.starts = {0}; }), Contains("seq_starts"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) { f.tokens = {}; }), Contains("no tokens"));
  REQUIRE_THROWS_WITH(opening([](Foreign& f) { f.elsewhere = "/etc/passwd"; }),
                      Contains("its data are in other files (virtual datasets)"));
}

TEST_CASE("wrong types, dimensions and names are refused with a message") {
  const TemporaryDirectory directory;
  const auto path = directory / "t.h5";
  const auto opening = [&](StoredType type, std::vector<int64_t> shape) {
    Hdf5File file = Hdf5File::create(path);
    file.create_dataset("train/encoded_tokens", type, shape);
    file.create_dataset("train/seq_starts", StoredType::kU64, {2});
    file.set_attribute("train", "format_version", int64_t{1});
    file.set_attribute("train", "max_token_id", int64_t{5});
    file.set_attribute("train", "vocab_size", int64_t{6});
    file.set_attribute("train", "tokenizer", "x");
    file.set_attribute("train", "tokenizer_fingerprint", "x");
    file.close();
    const FlatTokensReader reader(path, "train");
  };
  REQUIRE_THROWS_WITH(opening(StoredType::kF32, {2}), Contains("expected u32"));
  REQUIRE_THROWS_WITH(opening(StoredType::kU32, {2, 2}), Contains("2 dimensions"));
  // HDF5 itself would read unwritten chunks as zeros.
  REQUIRE_THROWS_WITH(opening(StoredType::kU32, {2}), Contains("never written"));

  write(path, {{1, 2}});
  REQUIRE_THROWS_WITH(FlatTokensReader(path, "trian"),
                      Contains("no split 'trian'") && Contains("did you mean 'train'"));
  Hdf5File::create(path).close();
  REQUIRE_THROWS_WITH(FlatTokensReader(path, "train"), Contains("without flat tokens"));
}

TEST_CASE("files that are not HDF5, missing or unreadable are refused with a message") {
  const TemporaryDirectory directory;
  REQUIRE_THROWS_WITH(FlatTokensReader(directory / "none.h5", "train"), Contains("no such file"));
  REQUIRE_THROWS_WITH(FlatTokensReader(directory.path(), "train"), Contains("got a directory"));
  write_bytes(directory / "empty.h5", "");
  REQUIRE_THROWS_WITH(FlatTokensReader(directory / "empty.h5", "train"),
                      Contains("not an HDF5 file"));
  write_bytes(directory / "text.h5", std::string(5000, 'x'));
  REQUIRE_THROWS_WITH(FlatTokensReader(directory / "text.h5", "train"),
                      Contains("not an HDF5 file"));
}

// Opens and reads everything and compares with `expected`; true if that was an Error.
bool is_refused(const std::filesystem::path& path, const std::vector<uint32_t>& expected) {
  try {
    const FlatTokensReader reader(path, "train");
    const std::vector<uint32_t> encoded = read_all(reader);
    if (encoded != expected) FAIL("damage went unnoticed");
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST_CASE("a truncated file is refused wherever it ends") {
  const TemporaryDirectory directory;
  std::vector<int32_t> document(100000);
  for (size_t i = 0; i < document.size(); ++i) document[i] = static_cast<int32_t>(1 + i % 250);
  write(directory / "t.h5", {document});
  const std::string bytes = read_bytes(directory / "t.h5");
  const size_t size = bytes.size();
  for (size_t length : {size_t{0}, size_t{1}, size_t{8}, size_t{40}, size_t{48}, size_t{100},
                        size_t{512}, size_t{2048}, size / 4, size / 2, size - 4096, size - 1}) {
    CAPTURE(length, size);
    write_bytes(directory / "cut.h5", bytes.substr(0, length));
    REQUIRE(is_refused(directory / "cut.h5", {}));
  }
}

TEST_CASE("a flipped bit is detected or harmless") {
  const TemporaryDirectory directory;
  std::vector<int32_t> document(5000);
  for (size_t i = 0; i < document.size(); ++i) document[i] = static_cast<int32_t>(1 + i % 250);
  write(directory / "t.h5", {document, {1, 2, 3}});
  const std::vector<uint32_t> expected = read_all(FlatTokensReader(directory / "t.h5", "train"));
  const std::string bytes = read_bytes(directory / "t.h5");
  std::mt19937_64 random(1);
  int refused = 0;
  constexpr int kFlips = 600;
  for (int i = 0; i < kFlips; ++i) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 << (random() % 8));
    write_bytes(directory / "flipped.h5", damaged);
    if (is_refused(directory / "flipped.h5", expected)) ++refused;
  }
  // Chunks are allocated whole, so most of a small file is unused.
  CAPTURE(refused, bytes.size());
  REQUIRE(refused > 5);
}

// The fenced Python block that contains `phrase`.
std::string python_block(const std::string& document, const std::string& phrase) {
  const std::string fence = "```python\n";
  const size_t at = document.find(phrase);
  REQUIRE(at != std::string::npos);
  const size_t begin = document.rfind(fence, at) + fence.size();
  return document.substr(begin, document.find("```", at) - begin);
}

TEST_CASE("a token file written by h5py as documented is read") {
  const std::string python = python_with("h5py");
  if (python.empty()) {
    WARN("skipped: no Python with h5py (Debian: python3-h5py)");
    return;
  }
  const TemporaryDirectory directory;
  const std::string document = read_bytes(TESSERA_SOURCE_DIR "/docs/formats.md");
  write_bytes(directory / "write.py", python_block(document, "h5py.File(\"tokens.h5\", \"w\")"));
  REQUIRE(std::system(
              fmt::format("cd {} && {} write.py", directory.path().string(), python).c_str()) == 0);
  const FlatTokensReader reader(directory / "tokens.h5", "train");
  std::vector<uint32_t> encoded(5);
  reader.read(0, encoded);
  REQUIRE(encoded == std::vector<uint32_t>{11, 18, 4, 15, 14});
  std::vector<uint64_t> starts(3);
  reader.read_starts(0, starts);
  REQUIRE(starts == std::vector<uint64_t>{0, 3, 5});
  REQUIRE(reader.tokenizer_name() == "mine");
  REQUIRE(reader.vocab_size() == 10);
}

}  // namespace

}  // namespace tessera
