// SPDX-License-Identifier: Apache-2.0
// Columns of Parquet: a data set of several files, files whose columns differ, what is read of a
// wide file, and hostile sizes.
#include <filesystem>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/readers/compression.h"
#include "inputs/readers/document_format.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/memory_source.h"
#include "tests/support/skip.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

fs::path golden_columns(const std::string& name) {
  return source_root() / "tests/golden/documents" / name;
}

std::unique_ptr<StreamingTextInput> stream_of_columns(const fs::path& path,
                                                      const std::string& field = "text") {
  auto input = std::make_unique<StreamingTextInput>(
      StreamingTextInput::HParams{.path = path.string(),
                                  .split = StreamSplit::kAll,
                                  .global_batch_size = 1,
                                  .seq_len = 9,
                                  .labels = Labels::kShiftRight,
                                  .text_field = field,
                                  .shuffle = false,
                                  .repeat = false});
  input->attach({});
  return input;
}

// The text of the rows from here on.
std::string rest_of_stream(StreamingTextInput& input) {
  std::string text;
  while (const auto batch = input.get_next())
    for (size_t at = 0; at < 9; ++at)
      if (batch->at("paddings").data<float>()[at] == 0.0f)
        text += input.tokenizer()->decode({batch->at("labels").data<int32_t>()[at]});
  return text;
}

TEST_CASE("a stream of several Parquet files resumes at every row, across files and row groups") {
  if (const std::string reason = why_no_columns(); !reason.empty()) return skip_test(reason);
  std::string whole;
  const auto one_file = open_documents(golden_columns("none.parquet"));
  while (const auto text = one_file->next()) whole += *text;
  const auto input = stream_of_columns(golden_columns("part-*.parquet"));
  int64_t rows = 0;
  for (std::string read;; ++rows) {
    const InputState state = input->state();
    const auto resumed = stream_of_columns(golden_columns("part-*.parquet"));
    resumed->restore(state);
    CAPTURE(rows);
    REQUIRE(read + rest_of_stream(*resumed) == whole);
    const auto batch = input->get_next();
    if (!batch) break;
    for (size_t at = 0; at < 9 && read.size() < whole.size(); ++at)
      read += input->tokenizer()->decode({batch->at("labels").data<int32_t>()[at]});
  }
  REQUIRE(rows > 90);
}

TEST_CASE(
    "a Parquet file without the column, or with another type of it, is an error that names it") {
  if (const std::string reason = why_no_columns(); !reason.empty()) return skip_test(reason);
  const auto error_of_stream = [](const char* first, const char* second, const char* field) {
    const TemporaryDirectory folder;
    fs::copy(golden_columns(first), folder / "0.parquet");
    fs::copy(golden_columns(second), folder / "1.parquet");
    const auto input = stream_of_columns(folder.path(), field);
    REQUIRE(input->get_next());  // Documents of the first file.
    return error_of([&] { rest_of_stream(*input); });
  };
  REQUIRE_THAT(
      error_of_stream("part-0.parquet", "numbers.parquet", "text"),
      Contains("1.parquet: the column 'text' is of type int64, expected string or binary"));
  REQUIRE_THAT(error_of_stream("numbers.parquet", "part-0.parquet", "body"),
               Contains("1.parquet: no column 'body'; the table has text"));
}

// A source that counts the bytes that are read from it.
class CountedSource final : public ByteSource {
 public:
  CountedSource(std::string bytes, int64_t* count)
      : memory_(std::move(bytes), "counted.parquet"), count_(count) {}
  size_t read(char* into, size_t size) override {
    const size_t got = memory_.read(into, size);
    *count_ += static_cast<int64_t>(got);
    return got;
  }
  void seek(int64_t offset) override { memory_.seek(offset); }
  int64_t size() const override { return memory_.size(); }
  int64_t bytes_read() const override { return memory_.bytes_read(); }
  const std::string& where() const override { return memory_.where(); }

 private:
  MemorySource memory_;
  int64_t* count_;
};

std::string unpacked(const std::string& name) {
  const fs::path path = golden_columns(name);
  std::string bytes(size_t{16} << 20, '\0');
  const auto source = compression_by_name(path)->decompress(open_file(path));
  bytes.resize(read_fully(*source, bytes.data(), bytes.size()));
  return bytes;
}

TEST_CASE("of a wide Parquet file only the pages of the column and of the row groups are read") {
  if (const std::string reason = why_no_columns(); !reason.empty()) return skip_test(reason);
  const std::string bytes = unpacked("wide.parquet.gz");
  constexpr int64_t kDocuments = 256, kDocument = 1024, kGroups = 4;
  constexpr int64_t kHeads = 80000;  // The footer, for which 64 KiB are read, and heads of pages.
  REQUIRE(std::ssize(bytes) > 8 * kDocuments * kDocument);
  int64_t count = 0;
  const auto reader =
      read_documents(std::make_unique<CountedSource>(bytes, &count), "counted.parquet");
  REQUIRE(count < kHeads);
  int64_t documents = 0;
  while (const auto text = reader->next())
    REQUIRE(*text == fmt::format("{:04}", documents++) + std::string(kDocument - 4, 't'));
  REQUIRE(documents == kDocuments);
  REQUIRE(count > kDocuments * kDocument);
  REQUIRE(count < kDocuments * kDocument + kHeads);
  count = 0;
  reader->seek({250, 250});
  REQUIRE(reader->next()->starts_with("0250t"));
  REQUIRE(count < kDocuments * kDocument / kGroups + 2000);
}

TEST_CASE("of long documents in Parquet few are read at once") {
  if (const std::string reason = why_no_columns(); !reason.empty()) return skip_test(reason);
  const std::string bytes = unpacked("long.parquet.gz");
  constexpr int64_t kMebibyte = 1 << 20;
  REQUIRE(std::ssize(bytes) > 8 * kMebibyte);
  int64_t count = 0;
  const auto reader =
      read_documents(std::make_unique<CountedSource>(bytes, &count), "counted.parquet");
  for (int64_t document = 0; document < 64; ++document) {
    REQUIRE(reader->next()->starts_with(fmt::format("{:04}t", document)));
    REQUIRE(count < (document + 1) * kMebibyte / 8 + 3 * kMebibyte);
  }
  REQUIRE(!reader->next());
}

// Writes a table of pyarrow `pa` by an expression to a.parquet.
void write_table(const TemporaryDirectory& folder, const std::string& table) {
  const std::string script = fmt::format(
      "import pyarrow as pa, pyarrow.parquet as pq\n"
      "pq.write_table({}, 'a.parquet', use_dictionary=False, write_statistics=False,\n"
      "               store_schema=False, compression='zstd')\n",
      table);
  write_bytes(folder / "write.py", script);
  REQUIRE(std::system(fmt::format("cd '{}' && {} write.py", folder.path().string(),
                                  python_with("pyarrow.parquet"))
                          .c_str()) == 0);
}

TEST_CASE("a hundred thousand columns and a cell of more than a gibibyte are read or refused",
          "[full]") {
  if (const std::string reason = why_no_columns(); !reason.empty()) return skip_test(reason);
  if (python_with("pyarrow.parquet").empty()) return skip_test("no Python with pyarrow");
  const TemporaryDirectory folder;
  write_table(folder,
              "pa.table([pa.array([1, 2], pa.int8())] * 100000 + [pa.array(['one', 'two'])],\n"
              "         names=[f'column {i}' for i in range(100000)] + ['text'])");
  const auto wide = open_documents(folder / "a.parquet");
  REQUIRE(wide->next() == "one");
  REQUIRE(wide->next() == "two");
  REQUIRE(!wide->next());
  REQUIRE_THROWS_WITH(open_documents(folder / "a.parquet", {.text_field = "none"}),
                      Contains("a.parquet: no column 'none'; the table has text"));
  write_table(folder, "pa.table({'text': pa.array(['one', 'x' * 1100000000, 'two'])})");
  const auto large =
      open_documents(folder / "a.parquet", {.corrupt_records = CorruptRecords::kSkip});
  REQUIRE(large->next() == "one");
  REQUIRE(large->next() == "two");
  REQUIRE_THAT(large->corrupt().first, Contains("a.parquet: row 2: the document has more than"));
}

}  // namespace
}  // namespace tessera
