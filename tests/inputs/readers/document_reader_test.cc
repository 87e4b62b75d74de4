// SPDX-License-Identifier: Apache-2.0
// Documents of text and of JSON lines, plain and compressed: contents, resuming, corrupt records
// and damaged streams.
#include <filesystem>
#include <memory>
#include <random>

#include "core/base/error.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/document_format.h"
#include "tests/support/catch.h"
#include "tests/support/compress.h"
#include "tests/support/memory_source.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Texts = std::vector<std::string>;

Texts rest_of(DocumentReader& reader) {
  Texts texts;
  while (auto text = reader.next()) texts.push_back(*std::move(text));
  return texts;
}

Texts read(const std::string& bytes, const std::string& path, const ReadOptions& options = {}) {
  return rest_of(*documents_in_memory(bytes, path, options));
}

const std::string kLines =
    "{\"text\": \"one\", \"url\": \"a\"}\n"
    "{\"url\": {\"text\": \"deep\"}, \"text\": \"t\\u00e9 \\ud83d\\ude00\\n\"}\r\n"
    "\n"
    "{\"text\": \"\"}\n"
    "{\"text\": \"last\"}";
const Texts kLineTexts = {"one", "t\xc3\xa9 \xf0\x9f\x98\x80\n", "", "last"};

TEST_CASE("lines of JSON give their text field, a text file is one document") {
  REQUIRE(read(kLines, "a.jsonl") == kLineTexts);
  REQUIRE(read(kLines, "a.json") == kLineTexts);
  REQUIRE(read(kLines, "A.JSONL") == kLineTexts);
  REQUIRE(read(kLines, "a.txt") == Texts{kLines});
  REQUIRE(read("{\"body\": \"x\"}\n", "a.jsonl", {.text_field = "body"}) == Texts{"x"});
  REQUIRE(read("", "a.jsonl").empty());
  REQUIRE(read("", "a.txt").empty());
}

TEST_CASE("a separator splits a text; nothing follows the last separator") {
  const ReadOptions options{.separator = "<|end|>"};
  REQUIRE(read("a<|end|>b\n<|end|><|end|>c", "a.txt", options) == Texts{"a", "b\n", "", "c"});
  REQUIRE(read("a<|end|>", "a.txt", options) == Texts{"a"});
  REQUIRE(read("a<|end|", "a.txt", options) == Texts{"a<|end|"});
}

TEST_CASE("compressed files of several members and frames are concatenated") {
  const std::string half = kLines.substr(0, 50);
  const std::string other = kLines.substr(50);
  REQUIRE(read(gzip(kLines), "a.jsonl.gz") == kLineTexts);
  REQUIRE(read(gzip(half) + gzip("") + gzip(other), "a.jsonl.gz") == kLineTexts);
  REQUIRE(read(gzip(half) + gzip(other) + std::string(700, '\0'), "a.jsonl.gz") == kLineTexts);
  REQUIRE(read(zstd(kLines), "a.json.zst") == kLineTexts);
  REQUIRE(read(zstd(half) + zstd("") + zstd(other), "a.json.zst") == kLineTexts);
  // A skippable frame of 3 bytes.
  const std::string skippable("\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
  REQUIRE(read(skippable + zstd(kLines), "a.json.zst") == kLineTexts);
  REQUIRE(read(gzip("plain"), "a.txt.gz") == Texts{"plain"});
}

TEST_CASE("windows of Zstandard are read up to 2 GiB, and several in one file") {
  const std::string half = kLines.substr(0, 50), other = kLines.substr(50);
  for (const int window_log : {10, 27, 28, 30, 31}) {
    CAPTURE(window_log);
    std::string bytes = zstd(half, window_log);
    REQUIRE(static_cast<uint8_t>(bytes.at(5)) == (window_log - 10) << 3);
    bytes += zstd(other, 27) + zstd("") + zstd("\n" + kLines, 31);
    const auto reader = documents_in_memory(bytes, "a.json.zst");
    for (int time = 0; time < 2; ++time) {
      for (const std::string& text : kLineTexts) REQUIRE(reader->next() == text);
      REQUIRE(rest_of(*reader) == kLineTexts);
      reader->seek({});
    }
  }
  std::string wider = zstd(kLines, 31);
  wider.at(5) = 22 << 3;
  REQUIRE_THROWS_WITH(read(wider, "a.json.zst"),
                      Contains("a.json.zst: ") && Contains("requires too much memory"));
}

TEST_CASE("text that Zstandard copies over more than 128 MiB is read", "[full]") {
  std::minstd_rand random;
  std::string noise;
  for (int i = 0; i < 2000; ++i) noise += static_cast<char>('a' + random() % 26);
  const std::string far = noise + std::string((size_t{128} << 20) + 100000, 'x') + noise;
  const std::string packed = zstd(far, 28);
  REQUIRE(zstd(far, 27).size() > packed.size() + 500);
  REQUIRE(read(packed, "a.txt.zst") == Texts{far});
}

// Long enough to fill buffers several times, with pieces across their boundaries.
std::string many_lines(int count, Texts* texts) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    texts->push_back(
        std::string(static_cast<size_t>(i * 7919 % 5000), static_cast<char>('a' + i % 26)));
    lines += fmt::format("{{\"text\": \"{}\", \"n\": {}}}\n", texts->back(), i);
  }
  return lines;
}

TEST_CASE("a reader resumes at any position, forwards and backwards, in each kind of file") {
  Texts texts;
  const std::string lines = many_lines(600, &texts);
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.jsonl", lines},
      {"a.jsonl.gz", gzip(lines.substr(0, 777777)) + gzip(lines.substr(777777))},
      {"a.jsonl.zst", zstd(lines)}};
  for (const auto& [name, bytes] : files) {
    CAPTURE(name);
    const auto reader = documents_in_memory(bytes, name);
    std::vector<ShardPosition> positions = {reader->position()};
    for (const std::string& text : texts) {
      REQUIRE(reader->next() == text);
      positions.push_back(reader->position());
    }
    REQUIRE(!reader->next());
    REQUIRE(!reader->skip());
    for (const size_t at : {size_t{0}, size_t{311}, size_t{312}, size_t{5}, texts.size()}) {
      REQUIRE(positions[at].document == static_cast<int64_t>(at));
      reader->seek(positions[at]);
      REQUIRE(rest_of(*reader) ==
              Texts(texts.begin() + static_cast<std::ptrdiff_t>(at), texts.end()));
    }
    REQUIRE_THROWS_WITH(reader->seek({700, 100 * 1000 * 1000}),
                        Contains(name) && Contains("has been truncated"));
  }
}

TEST_CASE("skipping parses nothing and ends at the same position as reading") {
  Texts texts;
  const std::string lines = many_lines(200, &texts);
  const auto reader = documents_in_memory("broken\n" + lines, "a.jsonl");
  REQUIRE(reader->skip());
  for (size_t i = 0; i < texts.size(); i += 2) {
    REQUIRE(reader->next() == texts[i]);
    REQUIRE(reader->skip());
  }
  REQUIRE(!reader->skip());
  REQUIRE(reader->position().document == 201);
  REQUIRE(reader->position().offset == static_cast<int64_t>(lines.size() + 7));
}

TEST_CASE(
    "readers of every n-th document return each document once, and count their own corrupt "
    "records") {
  const std::string lines =
      "{\"text\": \"0\"}\nx\n{\"text\": \"2\"}\n\n{\"text\": \"4\"}\n{\"text\": \"5\"}\n";
  const auto texts_of = [&](int64_t first, int64_t corrupt) {
    const auto reader = documents_in_memory(
        lines, "a.jsonl", {.corrupt_records = CorruptRecords::kSkip, .every = 3, .first = first});
    const Texts texts = rest_of(*reader);
    REQUIRE(reader->corrupt().count == corrupt);
    return texts;
  };
  REQUIRE(texts_of(0, 0) == Texts{"0"});
  REQUIRE(texts_of(1, 1) == Texts{"4"});
  REQUIRE(texts_of(2, 0) == Texts{"2", "5"});
}

TEST_CASE("UTF-8 byte order marks are removed at the beginning only") {
  const std::string mark = "\xef\xbb\xbf";
  REQUIRE(read(mark + kLines, "a.jsonl") == kLineTexts);
  REQUIRE(read(mark + "a" + mark, "a.txt") == Texts{"a" + mark});
  REQUIRE(read(mark + "a", "a.txt", {.require_utf8 = false}) == Texts{mark + "a"});
}

TEST_CASE("a corrupt record is reported with file and line") {
  const auto fault = [](const std::string& bytes, const std::string& path,
                        const ReadOptions& options = {}) {
    std::string message;
    try {
      read(bytes, path, options);
    } catch (const Error& error) {
      message = error.what();
    }
    // With kSkip it is skipped and counted, and its neighbours are not.
    ReadOptions skipping = options;
    skipping.corrupt_records = CorruptRecords::kSkip;
    const auto reader = documents_in_memory(bytes, path, skipping);
    rest_of(*reader);
    REQUIRE(reader->corrupt().count == 1);
    REQUIRE(message.starts_with(reader->corrupt().first));
    REQUIRE_THAT(message, Contains("broken=skip"));
    return message;
  };
  const std::string good = "{\"text\": \"x\"}\n";
  REQUIRE_THAT(fault(good + "{\"text\": \"x\"\n" + good, "dir/a.jsonl"),
               Contains("dir/a.jsonl:2: not valid JSON"));
  REQUIRE_THAT(fault(good + "{\"text\": \"x\"} {}\n" + good, "a.jsonl"),
               Contains("a.jsonl:2: not valid JSON"));
  REQUIRE_THAT(
      fault(good + good + "{\"txet\": 1, \"url\": 2}", "a.jsonl"),
      Contains(
          "a.jsonl:3: no field 'text'; the line has txet, url; did you mean text_field=txet?"));
  REQUIRE_THAT(fault("{\"id\": \"x\", \"content\": \"a text\"}", "a.jsonl"),
               Contains("the line has id, content; did you mean text_field=content?"));
  REQUIRE_THAT(fault("{\"id\": \"x\", \"meta\": {\"text\": \"a text\"}}", "a.jsonl"),
               Contains("did you mean text_field=meta.text?"));
  REQUIRE_THAT(fault("[\n", "a.json"), Contains("jq -c '.[]' makes lines of a list"));
  REQUIRE_THAT(fault("{\"text\": [1]}\n" + good, "a.jsonl"),
               Contains("a.jsonl:1: the field 'text' is a list, expected a string"));
  REQUIRE_THAT(fault("[1]\n", "a.jsonl"), Contains("the line is a list, expected an object"));
  REQUIRE_THAT(fault(good + "{\"text\": \"\xe9t\xe9\"}\n", "a.jsonl"),
               Contains("a.jsonl:2: not UTF-8: byte 0xe9 at byte 10 of the document"));
  REQUIRE_THAT(fault(good + "{\"text\": \"\\udc00\"}\n", "a.jsonl"), Contains("a.jsonl:2: "));
  REQUIRE_THAT(fault(good + "{\"text\": \"\\ud800x\"}\n", "a.jsonl"), Contains("a.jsonl:2: "));
  REQUIRE_THAT(fault("{\"a\":" + std::string(5000, '['), "a.jsonl"),
               Contains("a.jsonl:1: not valid JSON"));
  REQUIRE_THAT(fault("one\ntwo\xff\n", "a.txt"),
               Contains("a.txt:2: not UTF-8: byte 0xff at byte 7"));
  REQUIRE_THAT(fault("a|b\xff|c", "a.txt", {.separator = "|"}),
               Contains("a.txt: document 2: not UTF-8"));
  for (const bool require_utf8 : {true, false})
    REQUIRE_THROWS_WITH(
        read(std::string("\xff\xfeh\0i\0", 6), "a.txt",
             {.corrupt_records = CorruptRecords::kSkip, .require_utf8 = require_utf8}),
        Contains("a.txt: is UTF-16, which is not read as text; convert it: iconv"));
  REQUIRE(read("\xff", "a.txt", {.require_utf8 = false}) == Texts{"\xff"});
}

TEST_CASE("values of other fields are not interpreted") {
  for (const std::string value :
       {"NaN", "[-Infinity, Infinity]", "1e999", "123456789012345678901234567890",
        "{\"x\": -1e-999}", "\"\\ud800\"", "\"\\udc00\\ud83d\\ude00 \\\\ud800\""}) {
    CAPTURE(value);
    REQUIRE(read("{\"id\": " + value + ", \"text\": \"a \\\"NaN\\\" \\u00e9\"}\n", "a.jsonl") ==
            Texts{"a \"NaN\" \xc3\xa9"});
  }
  // The text itself is, and one field does not stand for another.
  const ReadOptions skipping = {.corrupt_records = CorruptRecords::kSkip};
  for (const std::string line : {R"({"id": NaN, "text": "a\udc00"})", R"({"id": 1, "text": NaN})"})
    REQUIRE(read(line, "a.jsonl", skipping).empty());
  REQUIRE(read(R"({"text": "a", "text": "b"})", "a.jsonl") == Texts{"b"});
}

TEST_CASE("a document longer than the limit is corrupt, and the next one is read") {
  const std::string lines =
      "{\"text\": \"" + std::string(3000000, 'x') + "\"}\n{\"text\": \"y\"}\n";
  const ReadOptions options{.max_document_bytes = 1000};
  REQUIRE_THROWS_WITH(read(lines, "a.jsonl", options),
                      Contains("a.jsonl:1: the document has more than 1000 bytes"));
  ReadOptions skipping = options;
  skipping.corrupt_records = CorruptRecords::kSkip;
  const auto reader = documents_in_memory(lines, "a.jsonl", skipping);
  REQUIRE(rest_of(*reader) == Texts{"y"});
  REQUIRE(reader->corrupt().count == 1);
  // Exactly at the limit, and one byte more.
  REQUIRE(read(std::string(1000, 'x'), "a.txt", options).size() == 1);
  REQUIRE_THROWS_WITH(read(std::string(1001, 'x'), "a.txt", options),
                      Contains("a.txt: the document has more"));
}

TEST_CASE("compressed streams that are truncated, damaged or followed by other data are refused") {
  Texts texts;
  const std::string lines = many_lines(50, &texts);
  const ReadOptions skipping{.corrupt_records = CorruptRecords::kSkip};
  for (const auto& [name, bytes] : {std::pair<std::string, std::string>{"a.jsonl.gz", gzip(lines)},
                                    {"a.jsonl.zst", zstd(lines)}}) {
    const std::string kind = name == "a.jsonl.gz" ? "gzip" : "zstd";
    for (const size_t length :
         {size_t{0}, size_t{1}, size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
      CAPTURE(name, length);
      REQUIRE_THROWS_WITH(read(bytes.substr(0, length), name, skipping),
                          Contains(name + ": the " + kind + " stream is truncated"));
    }
    REQUIRE_THROWS_WITH(read(bytes + "trailing bytes", name, skipping),
                        Contains(name + ": damaged " + kind));
    std::string damaged = bytes;
    damaged[bytes.size() / 2] = static_cast<char>(damaged[bytes.size() / 2] ^ 1);
    REQUIRE_THROWS_WITH(read(damaged, name, skipping), Contains(name + ": damaged " + kind));
    REQUIRE_THROWS_WITH(read(lines, name, skipping), Contains("damaged " + kind));
  }
}

TEST_CASE("missing and unreadable files are refused with a message") {
  const TemporaryDirectory directory;
  REQUIRE_THROWS_WITH(open_documents(directory / "none.jsonl"),
                      Contains("none.jsonl: cannot open: No such file"));
  REQUIRE_THROWS_WITH(open_documents(directory.path()), Contains("got a directory"));
  write_bytes(directory / "a.jsonl.gz", gzip(kLines));
  REQUIRE(rest_of(*open_documents(directory / "a.jsonl.gz")) == kLineTexts);
  write_bytes(directory / "a.log", kLines);
  REQUIRE(rest_of(*open_documents(directory / "a.log", {}, "jsonl")) == kLineTexts);
}

TEST_CASE("readers of one file share its descriptor, and one that is replaced is opened again") {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const TemporaryDirectory folder;
  write_bytes(folder / "a.txt", "old");
  std::filesystem::create_symlink("a.txt", folder / "link.txt");
  const auto before = open_files();
  std::vector<std::unique_ptr<ByteSource>> sources;
  for (int i = 0; i < 20; ++i)
    sources.push_back(open_file(folder / (i % 2 ? "a.txt" : "link.txt")));
  REQUIRE(open_files() == before + 1);
  write_bytes(folder / "new", "new");
  std::filesystem::rename(folder / "new", folder / "a.txt");
  sources.push_back(open_file(folder / "a.txt"));
  REQUIRE(open_files() == before + 2);
  std::string text(3, ' ');
  for (const auto& [source, expected] : {std::pair(5, "old"), {20, "new"}}) {
    REQUIRE(sources[static_cast<size_t>(source)]->read(text.data(), 3) == 3);
    REQUIRE(text == expected);
  }
  sources.clear();
  REQUIRE(open_files() == before);
}

}  // namespace
}  // namespace tessera
