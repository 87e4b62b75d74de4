// SPDX-License-Identifier: Apache-2.0
// Fuzz tests of the readers of documents and tokens (lines of JSON, separated text, compressions,
// TFRecord, Parquet, Arrow, .bin of nanoGPT and llm.c) and of the build journal: inputs are
// accepted or refused with an Error.
#include <cstring>
#include <stdexcept>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_journal.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/foreign_format.h"
#include "tests/support/catch.h"
#include "tests/support/compress.h"
#include "tests/support/fuzz.h"
#include "tests/support/memory_source.h"
#include "tests/support/skip.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

constexpr int64_t kLongest = 1 << 16;

// Reads twice, the second time from the middle: the documents must be equal.
void read_twice(std::string_view bytes, const std::string& path, const ReadOptions& options) {
  const auto reader = documents_in_memory(std::string(bytes), path, options);
  std::vector<std::string> texts;
  std::vector<ShardPosition> places = {reader->position()};
  while (auto text = reader->next()) {
    if (static_cast<int64_t>(text->size()) > kLongest) throw std::logic_error("too long");
    texts.push_back(*std::move(text));
    places.push_back(reader->position());
  }
  const size_t middle = texts.size() / 2;
  reader->seek(places[middle]);
  for (size_t i = middle; i < texts.size(); ++i)
    if (reader->next() != texts[i]) throw std::logic_error("another document after seek");
  if (reader->next()) throw std::logic_error("one more document after seek");
}

void fuzz_documents(const std::string& name, const std::string& path,
                    const std::vector<std::string>& seeds, const ReadOptions& options,
                    int64_t count) {
  const bool may_skip = options.corrupt_records == CorruptRecords::kSkip && name == "json_lines";
  const auto read = [&](std::string_view bytes) {
    // A file in another format is refused whatever is skipped.
    if (!may_skip || !foreign_format(bytes)) read_twice(bytes, path, options);
  };
  const FuzzReport report = fuzz(name, seeds, read, count);
  REQUIRE((report.refused > 0) != may_skip);
  REQUIRE(report.refused < report.inputs);
}

const std::string kLines =
    "{\"text\": \"one \\u00e9\", \"n\": [1, 2.5e3, null]}\n{\"url\": {}, \"text\": \"two\"}\r\n\n"
    "{\"text\": \"\\ud83d\\ude00 \xf0\x9f\x98\x80\"}\n";

std::string golden_documents(const std::string& name) {
  return read_file(source_root() / "tests/golden/documents" / name);
}

void fuzz_all_documents(int64_t count) {
  const ReadOptions fail{.separator = "<|end|>", .max_document_bytes = kLongest};
  ReadOptions skip = fail;
  skip.corrupt_records = CorruptRecords::kSkip;
  const std::vector<std::string> lines = {kLines, "\xef\xbb\xbf" + kLines};
  fuzz_documents("json_lines", "a.jsonl", lines, fail, count);
  fuzz_documents("json_lines", "a.jsonl", lines, skip, count);
  fuzz_documents("text", "a.txt", {"one<|end|>two \xc3\xa9<|end|>\xf0\x9f\x98\x80"}, fail, count);
  // Small, but longer than the document limit.
  const std::string bomb(1 << 17, 'x');
  fuzz_documents("gzip", "a.jsonl.gz", {gzip(kLines), gzip(kLines) + gzip("{}"), gzip(bomb)}, skip,
                 count);
  fuzz_documents("zstd", "a.jsonl.zst", {zstd(kLines), zstd(kLines) + zstd("{}"), zstd(bomb)}, skip,
                 count);
  for (const char* name : {"lines.jsonl.xz", "lines.jsonl.bz2", "c4.tfrecord-00000-of-00001"})
    fuzz_documents(name, name, {golden_documents(name)}, skip, count);
  if (!why_no_columns().empty()) return;
  for (const char* name : {"zstd.parquet", "nested.parquet", "file.arrow", "coded.arrow"})
    fuzz_documents(name, name, {golden_documents(name)}, skip, count);
}

std::string token_bin(int32_t magic, int32_t version, const std::string& tokens, int32_t count) {
  std::string bytes(1024, '\0');
  const int32_t head[3] = {magic, version, count};
  std::memcpy(bytes.data(), head, sizeof(head));
  return bytes + tokens;
}

// With an end id, documents end at it; without, all tokens are one sequence.
void read_tokens(std::string_view bytes, std::optional<int32_t> end_id) {
  const BuildInput input{"a.bin", nullptr, ValidationPart::kTail,
                         static_cast<int64_t>(bytes.size())};
  TokenBuild build;
  build.identity.vocab_size = 300;
  build.end_of_tokens = end_id;
  build.read.max_document_bytes = kLongest;
  const auto reader =
      read_token_bin(std::make_unique<MemorySource>(std::string(bytes), "a.bin"), input, build);
  DocumentBatch batch;
  while (reader->read({true, true}, &batch)) {
  }
  for (const DocumentIds& documents : batch.tokens) {
    uint64_t sum = 0;
    for (const uint64_t length : documents.lengths) sum += length & ~DocumentIds::kContinues;
    if (sum != documents.ids.size()) throw std::logic_error("lengths that are not the ids'");
    if (std::ranges::any_of(documents.ids, [](int32_t id) { return id < 0 || id >= 300; }))
      throw std::logic_error("an id beyond the vocabulary");
  }
}

void fuzz_tokens(int64_t count) {
  const std::string narrow("\x01\x00\x07\x00\x2b\x01\x05\x00", 8);
  const std::string wide("\x01\x00\x00\x00\x2b\x01\x00\x00", 8);
  const FuzzReport report = fuzz(
      "token_bin",
      {narrow + narrow, token_bin(20240520, 1, narrow, 4), token_bin(20240801, 7, wide, 2)},
      [](std::string_view bytes) {
        read_tokens(bytes, 7);
        read_tokens(bytes, std::nullopt);
      },
      count);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

void fuzz_journal(int64_t count) {
  UnitProgress progress;
  progress.parts[kTrain] = {100, 7};
  progress.skipped = {{3, "a.jsonl:4: \"x\""}, 2};
  progress.position = {1, {5, 900}};
  const FuzzReport report = fuzz(
      "build_journal", {journal_line(17, progress)},
      [](std::string_view line) {
        const auto [unit, read] = parse_journal_line(line, "journal");
        const auto [again, twice] = parse_journal_line(journal_line(unit, read), "journal");
        if (again != unit || twice.parts[kTrain].ids != read.parts[kTrain].ids ||
            twice.position.within.offset != read.position.within.offset ||
            twice.skipped.corrupt.first != read.skipped.corrupt.first)
          throw std::logic_error("a line that reads back otherwise");
      },
      count);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

TEST_CASE("mutated files of documents or tokens are read or refused") {
  fuzz_all_documents(kFastFuzz);
  fuzz_tokens(kFastFuzz);
  fuzz_journal(kFastFuzz);
}

TEST_CASE("a million mutated files of documents of each kind are read or refused", "[full]") {
  fuzz_all_documents(kFullFuzz);
}

TEST_CASE("a million mutated token files and journals are read or refused", "[full]") {
  fuzz_tokens(kFullFuzz);
  fuzz_journal(kFullFuzz);
}

}  // namespace
}  // namespace tessera
