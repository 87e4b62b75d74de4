// SPDX-License-Identifier: Apache-2.0
// Documents in each format, written by the libraries that users have (tests/golden/documents.py):
// contents, resuming, parts, damage, and formats of a plugin that is not built.
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/readers/compression.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/text_files.h"
#include "tests/support/catch.h"
#include "tests/support/memory_source.h"
#include "tests/support/skip.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Texts = std::vector<std::string>;

// The formula of documents.py.
Texts golden_texts() {
  Texts texts;
  for (int i = 0; i < 24; ++i) {
    std::string text = fmt::format("document {} ", i);
    for (int n = 0; n < i % 5; ++n) text += "\xc3\xa9";
    texts.push_back(text + std::string(static_cast<size_t>(i * 37 % 50), 'x'));
  }
  return texts;
}

std::filesystem::path golden(const std::string& name) {
  return source_root() / "tests/golden/documents" / name;
}

Texts rest_of_file(DocumentReader& reader) {
  Texts texts;
  while (auto text = reader.next()) texts.push_back(*std::move(text));
  return texts;
}

bool reads_columns() {
  const std::string reason = why_no_columns();
  if (!reason.empty()) WARN("skipped: " + reason);
  return reason.empty();
}

const Texts kEverywhere = {"lines.jsonl.xz", "lines.jsonl.bz2", "c4.tfrecord-00000-of-00001",
                           "c4.tfrecord.gz"};
const Texts kColumns = {"none.parquet",     "snappy.parquet", "gzip.parquet",  "brotli.parquet",
                        "zstd.parquet",     "lz4.parquet",    "delta.parquet", "large.parquet",
                        "nested.parquet",   "file.arrow",     "coded.arrow",   "datasets.arrow",
                        "checksums.parquet"};

Texts golden_files() {
  Texts files = kEverywhere;
  if (reads_columns()) files.insert(files.end(), kColumns.begin(), kColumns.end());
  return files;
}

TEST_CASE("each format gives the texts that its own library wrote") {
  for (const std::string& name : golden_files()) {
    CAPTURE(name);
    const auto reader = open_documents(golden(name));
    REQUIRE(rest_of_file(*reader) == golden_texts());
    REQUIRE(reader->corrupt().count == 0);
    REQUIRE(reader->bytes_read() > 0);
    REQUIRE(reader->bytes_read() <= static_cast<int64_t>(std::filesystem::file_size(golden(name))));
    REQUIRE(find_text_files({golden(name).string()}).files.size() == 1);
  }
}

TEST_CASE("a reader of each format resumes at every document, and parts share the documents") {
  const Texts texts = golden_texts();
  for (const std::string& name : golden_files()) {
    CAPTURE(name);
    const auto reader = open_documents(golden(name));
    std::vector<ShardPosition> positions = {reader->position()};
    while (reader->next()) positions.push_back(reader->position());
    REQUIRE(positions.size() == texts.size() + 1);
    for (const size_t at : {texts.size(), size_t{13}, size_t{7}, size_t{14}, size_t{0}}) {
      reader->seek(positions[at]);
      REQUIRE(rest_of_file(*reader) ==
              Texts(texts.begin() + static_cast<std::ptrdiff_t>(at), texts.end()));
      const auto other = open_documents(golden(name));
      other->seek(positions[at]);
      REQUIRE((at == texts.size() || other->next() == texts[at]));
    }
    for (int64_t first = 0; first < 3; ++first) {
      const auto part = open_documents(golden(name), {.every = 3, .first = first});
      for (size_t i = static_cast<size_t>(first); i < texts.size(); i += 3)
        REQUIRE(part->next() == texts[i]);
      REQUIRE(!part->next());
    }
    REQUIRE_THROWS_WITH(reader->seek({100, 1000000}), Contains("cannot resume"));
  }
}

std::string error_of(const std::string& name, const ReadOptions& options) {
  try {
    rest_of_file(*open_documents(golden(name), options));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Returns the error of reading a golden file some of whose bytes are others.
std::string error_with(const std::string& name, const std::map<size_t, char>& changed) {
  std::string bytes = read_file(golden(name));
  for (const auto& [at, value] : changed) bytes.at(at) = value;
  try {
    rest_of_file(*documents_in_memory(std::move(bytes), name, {}));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("damage of a page with a checksum, and codes without a text, are errors") {
  if (!reads_columns()) return;
  const size_t text = read_file(golden("checksums.parquet")).find("document 5 ");
  REQUIRE(error_with("checksums.parquet", {}).empty());
  REQUIRE_THAT(error_with("checksums.parquet", {{text, 'D'}}),
               Contains("checksums.parquet: ") && Contains("CRC"));
  // Damage that the fuzz test found: a code without a text, hidden by another fault.
  REQUIRE_THAT(error_with("coded.arrow", {{549, '\x80'}, {550, 0}, {965, 67}}),
               Contains("coded.arrow: "));
}

TEST_CASE("members of records are chosen by name") {
  const std::string lines = R"({"meta": {"text": "a", "deep": {"er": "b"}}, "x.y": "c"})";
  const auto read = [&](const std::string& field) {
    return rest_of_file(*documents_in_memory(lines, "a.jsonl", {.text_field = field}));
  };
  REQUIRE(read("meta.text") == Texts{"a"});
  REQUIRE(read("meta.deep.er") == Texts{"b"});
  REQUIRE(read("x.y") == Texts{"c"});
  REQUIRE_THROWS_WITH(read("meta.deep"), Contains("is an object, expected a string"));
  REQUIRE_THAT(error_of("c4.tfrecord.gz", {.text_field = "txt"}),
               Contains("c4.tfrecord.gz: record 1: no feature 'txt'; the example has ") &&
                   Contains("did you mean text_field=text?"));
  REQUIRE_THAT(error_of("c4.tfrecord.gz", {.text_field = "id"}),
               Contains("the feature 'id' has 0 texts, expected one"));
  REQUIRE_THAT(error_of("c4.tfrecord.gz", {.text_field = "url"}), Contains("has 2 texts"));
  if (!reads_columns()) return;
  const auto nested = open_documents(golden("nested.parquet"), {.text_field = "meta.body"});
  REQUIRE(nested->next() == "DOCUMENT 0 ");
  for (const char* name : {"nested.parquet", "file.arrow"}) {
    REQUIRE(rest_of_file(*open_documents(golden(name), {.text_field = "meta.lang"})) ==
            Texts(24, "en"));
    REQUIRE_THAT(error_of(name, {.text_field = "meta.txt"}),
                 Contains("no column 'meta.txt'; the table has text, meta.lang, meta.body"));
    REQUIRE_THAT(error_of(name, {.text_field = "id"}),
                 Contains("the column 'id' is of type int64, expected string or binary"));
  }
  REQUIRE_THAT(error_of("nulls.parquet", {}),
               Contains("nulls.parquet: row 2: the text 'text' is null"));
  const ReadOptions skipping{.corrupt_records = CorruptRecords::kSkip};
  REQUIRE(rest_of_file(*open_documents(golden("nulls.parquet"), skipping)) == Texts{"a", "c"});
}

TEST_CASE("damaged and truncated files are errors in each format, never other texts") {
  const TemporaryDirectory directory;
  for (const std::string& name : golden_files()) {
    const std::string bytes = read_file(golden(name));
    for (const size_t kept : {bytes.size() - 1, bytes.size() - 9, bytes.size() / 2, size_t{12}}) {
      CAPTURE(name, kept);
      write_bytes(directory / name, bytes.substr(0, kept));
      REQUIRE_THROWS_WITH(rest_of_file(*open_documents(directory / name)), Contains(name));
    }
    if (name.find("tfrecord-") == std::string::npos) continue;
    for (size_t at = 0; at < bytes.size(); at += 5) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      write_bytes(directory / name, damaged);
      REQUIRE_THROWS_WITH(rest_of_file(*open_documents(directory / name)), Contains("checksum"));
    }
  }
}

TEST_CASE("formats are found by content, else by name") {
  REQUIRE(document_format(golden("c4.tfrecord.gz"), kAutoFormat).name == "tfrecord");
  REQUIRE(document_format(golden("lines.jsonl.xz"), kAutoFormat).name == "jsonl");
  REQUIRE(document_format(golden("lines.jsonl.xz"), "text").name == "text");
  REQUIRE_THROWS_WITH(named_format("json"),
                      Contains("format=json: no such format; expected auto, ") &&
                          Contains("did you mean 'jsonl'?"));
  REQUIRE(compression_by_name("a.JSONL.XZ") != nullptr);
  REQUIRE(name_without_compression("a.jsonl.bz2") == "a.jsonl");
  const TemporaryDirectory directory;
  std::filesystem::copy(golden("zstd.parquet"), directory / "a.txt");
  if (reads_columns()) {
    REQUIRE(rest_of_file(*open_documents(directory / "a.txt")) == golden_texts());
    std::filesystem::copy(golden("lines.jsonl.xz"), directory / "b.parquet");
    REQUIRE_THROWS_WITH(open_documents(directory / "b.parquet", {}, "parquet"),
                        Contains("b.parquet"));
    REQUIRE_THROWS_WITH(open_documents(directory / "a.txt", {}, "jsonl"),
                        Contains("a.txt: is Parquet, got format=jsonl"));
  } else {
    REQUIRE_THROWS_WITH(open_documents(directory / "a.txt"),
                        Contains("a.txt: is Parquet") && Contains("pip install pyarrow"));
  }
}

}  // namespace
}  // namespace tessera
