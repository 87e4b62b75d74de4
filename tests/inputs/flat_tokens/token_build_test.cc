// SPDX-License-Identifier: Apache-2.0
// Building token files: equal bytes for any number of threads and interruptions, splits, limits,
// and errors.
#include "inputs/flat_tokens/token_build.h"

#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "inputs/flat_tokens/build_journal.h"
#include "inputs/shuffle.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/build_tokens.h"
#include "tests/support/compress.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

// JSON-lines files of many sizes, larger and smaller than a unit; returns the texts in order.
std::vector<std::string> write_corpus(const std::filesystem::path& folder) {
  std::vector<std::string> texts;
  for (int file = 0; file < 9; ++file) {
    std::string lines;
    const int documents = file == 4 ? 0 : (file % 3 == 0 ? 200 : 17);
    for (int i = 0; i < documents; ++i) {
      texts.push_back(
          fmt::format("{}/{} {}", file, i, std::string(static_cast<size_t>(i * 37 % 150), 'x')));
      lines += fmt::format("{{\"text\": \"{}\"}}\n", texts.back());
    }
    const std::string name = fmt::format("{}.jsonl{}", file,
                                         file % 3 == 0   ? ""
                                         : file % 3 == 1 ? ".gz"
                                                         : ".zst");
    write_bytes(folder / name, file % 3 == 0 ? lines : file % 3 == 1 ? gzip(lines) : zstd(lines));
  }
  return texts;
}

TEST_CASE("documents are in order with end ids, and split by their text") {
  const TemporaryDirectory directory;
  const std::vector<std::string> texts = write_corpus(directory / "corpus");
  const TokenBuild build = small_build_of({(directory / "corpus").string()}, directory / "t.h5",
                                          {.validation_fraction = 0.3});
  const TokenBuilt built = run_build(build);
  std::vector<std::string> expected[2];
  for (const std::string& text : texts)
    expected[in_validation_split(text, 0.3) ? 1 : 0].push_back(text + "|");
  REQUIRE(documents_of(directory / "t.h5", "train") == expected[0]);
  REQUIRE(documents_of(directory / "t.h5", "validation") == expected[1]);
  REQUIRE(built.documents[kTrain] == static_cast<int64_t>(expected[0].size()));
  REQUIRE(built.documents[kValidation] == static_cast<int64_t>(expected[1].size()));
  // The work files are removed.
  REQUIRE(!std::filesystem::exists(directory / ".t.h5.parts"));
}

TEST_CASE("the file has the same bytes for any number of threads") {
  const TemporaryDirectory directory;
  write_corpus(directory / "corpus");
  const int64_t max_tokens = GENERATE(-1, 700, 9000);
  std::string first;
  for (const int threads : {1, 2, 3, 8}) {
    TokenBuild build = small_build_of({(directory / "corpus").string()}, directory / "t.h5");
    build.threads = threads;
    build.max_tokens = max_tokens;
    const TokenBuilt built = run_build(build);
    if (max_tokens > 0) REQUIRE(built.tokens[kTrain] == max_tokens);
    const std::string bytes = read_bytes(directory / "t.h5");
    if (first.empty()) first = bytes;
    REQUIRE((bytes == first));  // In parentheses: not printed on failure.
  }
}

TEST_CASE("an interrupted build resumes and ends with the same bytes") {
  const TemporaryDirectory directory;
  write_corpus(directory / "corpus");
  TokenBuild build = small_build_of({(directory / "corpus").string()}, directory / "whole.h5");
  run_build(build);
  build.output = directory / "t.h5";
  int stops = 0;
  for (bool is_done = false; !is_done;) {
    std::atomic<bool> stop = false;
    build.stop = &stop;
    build.threads = 1 + stops % 3;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * (stops + 1)));
      stop = true;
    });
    try {
      std::string notes;
      run_build(build, &notes);
      is_done = true;
    } catch (const Error& error) {
      ++stops;
      REQUIRE_THAT(error.what(), Contains("interrupted"));
      REQUIRE(!std::filesystem::exists(directory / "t.h5"));
    }
    later.join();
  }
  REQUIRE((read_bytes(directory / "t.h5") == read_bytes(directory / "whole.h5")));
}

TEST_CASE("a truncated journal is resumed; other settings start over with a note") {
  const TemporaryDirectory directory;
  write_corpus(directory / "corpus");
  // A corrupt record at the end stops a build when it is nearly finished.
  write_bytes(directory / "corpus/9.jsonl", "{\"text\": \"fine\"}\nbroken\n");
  TokenBuild build = small_build_of({(directory / "corpus").string()}, directory / "t.h5");
  REQUIRE_THROWS_WITH(run_build(build), Contains("9.jsonl:2: not valid JSON") &&
                                            Contains("progress is saved in") &&
                                            Contains("the same command resumes"));
  const auto journal = directory / ".t.h5.parts/journal.jsonl";
  const std::string lines = read_bytes(journal);
  REQUIRE(std::count(lines.begin(), lines.end(), '\n') > 3);
  write_bytes(journal, lines.substr(0, lines.size() - 7));
  std::string notes;
  REQUIRE_THROWS_WITH(run_build(build, &notes), Contains("9.jsonl:2: not valid JSON"));
  REQUIRE_THAT(notes, Contains("resuming an unfinished build"));
  // A missing part is built again.
  REQUIRE(std::filesystem::remove(directory / ".t.h5.parts/000000.train.ids"));
  REQUIRE_THROWS_WITH(run_build(build, &notes), Contains("9.jsonl:2: not valid JSON"));
  REQUIRE(std::filesystem::exists(directory / ".t.h5.parts/000000.train.ids"));
  build.read.corrupt_records = CorruptRecords::kSkip;
  const TokenBuilt built = run_build(build, &notes);
  REQUIRE_THAT(notes,
               Contains("it had 'broken: fail', now 'broken: skip'") && Contains("starting over"));
  REQUIRE(built.skipped.corrupt.count == 1);
  REQUIRE_THAT(built.skipped.corrupt.first, Contains("9.jsonl:2: "));
}

TEST_CASE("skipped records are counted across interruptions") {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += i % 10 == 3   ? "{\"tixt\": 1}\n"
             : i % 10 == 4 ? "{\"text\": \"\"}\n"
                           : fmt::format("{{\"text\": \"document {}\"}}\n", i);
  write_bytes(directory / "a.jsonl", lines);
  TokenBuild build = small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5");
  build.read.corrupt_records = CorruptRecords::kSkip;
  for (;;) {
    std::atomic<bool> stop = true;
    build.stop = std::filesystem::exists(directory / ".t.h5.parts") ? nullptr : &stop;
    try {
      const TokenBuilt built = run_build(build);
      REQUIRE(built.skipped.corrupt.count == 30);
      REQUIRE(built.skipped.empty == 30);
      REQUIRE_THAT(built.skipped.corrupt.first, Contains("a.jsonl:4: no field 'text'"));
      REQUIRE(built.documents[kTrain] + built.documents[kValidation] == 240);
      return;
    } catch (const Error&) {
      // It may stop before anything is recorded; then nothing is kept.
      if (build.stop != nullptr && !std::filesystem::exists(directory / ".t.h5.parts"))
        build.stop = nullptr;
    }
  }
}

TEST_CASE("a document that needs too many steps of a pattern is named, or skipped and counted") {
  const TemporaryDirectory directory;
  write_bytes(
      directory / "t.json",
      R"({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": )"
      R"("(a|aa)+$"}}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  const auto tokenizer = make_tokenizer((directory / "t.json").string());
  write_bytes(directory / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"" + std::string(100, 'a') +
                                         "b\"}\n{\"text\": \"aab\"}\n");
  TokenBuild build = small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5",
                                    {.validation_fraction = 0.0});
  build.tokenizer = tokenizer.get();
  build.identity = identity_of(*tokenizer);
  build.document_end = std::nullopt;
  REQUIRE_THROWS_WITH(run_build(build), Contains("a.jsonl:2: ") &&
                                            Contains("t.json: pre_tokenizer.pattern.Regex") &&
                                            Contains("the pattern '(a|aa)+$' cannot be matched") &&
                                            Contains("broken=skip skips and counts"));
  build.read.corrupt_records = CorruptRecords::kSkip;
  const TokenBuilt built = run_build(build);
  REQUIRE(built.tokens[kTrain] == 5);
  REQUIRE(built.skipped.corrupt.count == 1);
  REQUIRE_THAT(built.skipped.corrupt.first, Contains("a.jsonl:2: "));
}

TEST_CASE("an error after the last required token is ignored") {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.jsonl", "{\"text\": \"0123456789\"}\n{\"text\": \"abc\"}\nbroken\n");
  for (const int threads : {1, 4}) {
    TokenBuild build = small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5",
                                      {.validation_fraction = 0.0});
    build.batch_bytes = 1;
    build.threads = threads;
    build.max_tokens = 13;
    REQUIRE(run_build(build).tokens[kTrain] == 13);
    REQUIRE(documents_of(directory / "t.h5", "train") ==
            std::vector<std::string>{"0123456789|", "ab"});
    build.max_tokens = 100;
    REQUIRE_THROWS_WITH(run_build(build), Contains("a.jsonl:3: "));
    std::filesystem::remove_all(directory / ".t.h5.parts");
  }
}

std::string u16_bytes(const std::vector<int>& ids) {
  std::string bytes;
  for (const int id : ids) bytes += {static_cast<char>(id & 0xff), static_cast<char>(id >> 8)};
  return bytes;
}

std::string llmc_bytes(const std::vector<int>& ids, bool is_wide) {
  std::vector<int32_t> header(256);
  header[0] = is_wide ? 20240801 : 20240520;
  header[1] = is_wide ? 7 : 1;
  header[2] = static_cast<int32_t>(ids.size());
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  if (!is_wide) return bytes + u16_bytes(ids);
  return bytes + std::string(reinterpret_cast<const char*>(ids.data()), 4 * ids.size());
}

TEST_CASE("tokens of nanoGPT and llm.c keep their ids, with documents ended by the end id") {
  const TemporaryDirectory directory;
  // nanoGPT puts the end id after a document, llm.c before it.
  write_bytes(directory / "a.bin", u16_bytes({'a', 'b', 256, 'c', 256, 'd'}));
  write_bytes(directory / "b.bin", llmc_bytes({256, 'e', 'f', 256, 'g'}, false));
  write_bytes(directory / "c.bin", llmc_bytes({256, 'h', 256, 256, 'i'}, true));
  const std::vector<std::string> paths = {(directory / "*.bin").string()};
  TokenBuild build = small_build_of(paths, directory / "t.h5", {.validation_fraction = 0.0});
  run_build(build);
  REQUIRE(documents_of(directory / "t.h5", "train") ==
          std::vector<std::string>{"ab|", "c|", "d", "ef|", "g", "h|", "|", "i"});
  // Without an end id each file is one document, whose tail is the validation split.
  BuildInputOptions options{.validation_fraction = 0.4};
  build = small_build_of(paths, directory / "t.h5", options);
  options.tokens_have_end_id = false;
  build.from = find_build_inputs(paths, options);
  build.end_of_tokens.reset();
  run_build(build);
  REQUIRE(documents_of(directory / "t.h5", "train") ==
          std::vector<std::string>{"ab|", "|ef", "|h|"});
  REQUIRE(documents_of(directory / "t.h5", "validation") ==
          std::vector<std::string>{"c|d", "|g", "|i"});
}

TEST_CASE("inconsistent token files are refused with a message") {
  const TemporaryDirectory directory;
  const auto failing = [&](const std::string& bytes, const std::string& why) {
    write_bytes(directory / "a.bin", bytes);
    const TokenBuild build = small_build_of({(directory / "a.bin").string()}, directory / "t.h5");
    REQUIRE_THROWS_WITH(run_build(build), Contains("a.bin: ") && Contains(why));
    REQUIRE(!std::filesystem::exists(directory / ".t.h5.parts"));
  };
  failing("abc", "not a multiple of 2-byte tokens");
  failing(u16_bytes({1, 2, 257}), "token 2 has id 257, but the vocabulary has 257");
  failing(llmc_bytes({1, 2, 3}, false).substr(0, 1028),
          "its header says 3 tokens of 2 bytes, but the file has 1028");
  std::string other = llmc_bytes({1}, false);
  other[4] = 9;
  failing(other, "of version 9; expected version 1");
}

std::string u32_bytes(const std::vector<int32_t>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), 4 * ids.size()};
}

std::string swapped(std::string bytes, size_t width) {
  for (size_t i = 0; i + width <= bytes.size(); i += width)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  return bytes;
}

TEST_CASE("token files of other tools are recognised, or --token_dtype is asked for") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "a.bin";
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 600; ++i) ids.push_back(i * 37 % 256);
  const auto build = [&](const std::string& bytes, int64_t vocab_size = 1 << 16,
                         TokenDType dtype = TokenDType::kAuto) {
    write_bytes(path, bytes);
    TokenBuild request = small_build_of({path.string()}, directory / "t.h5");
    request.identity = unknown_tokenizer(vocab_size);
    request.token_dtype = dtype;
    run_build(request);
    const FlatTokensReader reader(directory / "t.h5", "train");
    return reader.num_tokens() + FlatTokensReader(directory / "t.h5", "validation").num_tokens();
  };
  const auto failing = [&](const std::string& bytes, const std::string& why) {
    REQUIRE_THROWS_WITH(build(bytes), Contains("a.bin: ") && Contains(why));
  };
  REQUIRE(build(u16_bytes(ids)) == 600);
  REQUIRE(build(u32_bytes(ids), 1 << 17) == 600);  // Ids of 2 bytes cannot come from it.
  failing(u32_bytes(ids), "has ids of 4 bytes (--token_dtype=u32)");
  REQUIRE(build(u32_bytes(ids), 1 << 16, TokenDType::kU32) == 600);
  failing(swapped(u32_bytes(ids), 4), "has big-endian ids of 4 bytes");
  failing(swapped(u16_bytes(ids), 2), "has big-endian ids");
  failing(swapped(llmc_bytes(ids, false), 4), "llm.c's token file in big-endian byte order");
  std::vector<int32_t> wide;
  for (const int32_t id : ids) wide.insert(wide.end(), {id, 0});
  failing(u32_bytes(wide), "has ids of 8 bytes");
  failing("This is a text, and not at all a file of token ids.", "is text (--format=text)");
  failing("\x93NUMPY and the rest", "is a NumPy array");
  REQUIRE_THROWS_WITH(build(u16_bytes(ids), 1 << 17, TokenDType::kU16),
                      Contains("ids of 2 bytes cannot come from a vocabulary of 131072"));
}

TEST_CASE("one text is split at a character boundary, several texts as whole files") {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.txt", "abcd\xc3\xa9xy");
  run_build(small_build_of({(directory / "a.txt").string()}, directory / "t.h5",
                           {.validation_fraction = 0.35}));
  REQUIRE(documents_of(directory / "t.h5", "train") == std::vector<std::string>{"abcd\xc3\xa9|"});
  REQUIRE(documents_of(directory / "t.h5", "validation") == std::vector<std::string>{"xy|"});
  write_bytes(directory / "b.txt.gz", gzip("zipped text"));
  write_bytes(directory / "c.txt", "0123");
  run_build(small_build_of({directory.path().string()}, directory / "t.h5",
                           {.validation_fraction = 0.3}));
  std::vector<std::string> all = documents_of(directory / "t.h5", "train");
  for (const std::string& text : documents_of(directory / "t.h5", "validation"))
    all.push_back(text);
  std::sort(all.begin(), all.end());
  REQUIRE(all == std::vector<std::string>{"0123|", "abcd\xc3\xa9xy|", "zipped text|"});
}

TEST_CASE("an empty corpus is reported, and no files are left") {
  const TemporaryDirectory directory;
  write_bytes(directory / "corpus/a.txt", "");
  write_bytes(directory / "corpus/b.jsonl", "\n{\"text\": \"\"}\n");
  for (const char* path : {"corpus", "corpus/a.txt", "corpus/b.jsonl"}) {
    std::string message;
    try {
      run_build(small_build_of({(directory / path).string()}, directory / "t.h5"));
    } catch (const Error& error) {
      message = error.what();
    }
    REQUIRE_THAT(message, Contains("no text, so no tokens") &&
                              !Contains("the same command resumes") && !Contains("held out"));
    REQUIRE(std::distance(std::filesystem::directory_iterator(directory.path()),
                          std::filesystem::directory_iterator()) == 1);
  }
}

TEST_CASE("files named for validation are the validation split") {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  write_bytes(directory / "v.jsonl", "{\"text\": \"v\"}\n");
  BuildInputOptions options;
  options.validation = {(directory / "v.jsonl").string()};
  run_build(small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5", options));
  REQUIRE(documents_of(directory / "t.h5", "train") == std::vector<std::string>{"a|", "b|"});
  REQUIRE(documents_of(directory / "t.h5", "validation") == std::vector<std::string>{"v|"});
  REQUIRE_THROWS_WITH(
      small_build_of({(directory / "*.jsonl").string()}, directory / "t.h5", options),
      Contains("v.jsonl: is both a training input and in --validation"));
}

TEST_CASE("two concurrent builds of one file are refused") {
  const TemporaryDirectory directory;
  const BuildJournal first(directory / "t.h5", {"a"});
  REQUIRE_THROWS_WITH(BuildJournal(directory / "t.h5", {"a"}),
                      Contains("another process is building this file"));
}

TEST_CASE("progress shows the state, the rate and the remaining time") {
  BuildStatus status{
      .bytes = 420, .total_bytes = 1000, .bytes_before = 20, .tokens = 1234, .seconds = 4};
  REQUIRE(build_status_text(status, 10) ==
          "[====      ] 42 %  0.00 of 0.00 MB  0.0 MB/s  1.2k tokens  0:06 left");
  REQUIRE(build_status_text({}, 0) == "0 %  0.00 of 0.00 MB  0.0 MB/s  0 tokens");
}

}  // namespace
}  // namespace tessera
