// SPDX-License-Identifier: Apache-2.0
// The size of the validation split of corpora with few, long or equal documents.
#include <set>
#include <stdexcept>

#include "inputs/flat_tokens/build_journal.h"
#include "inputs/shuffle.h"
#include "tests/support/build_tokens.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("there is a validation split if there is enough text, else a warning") {
  const TemporaryDirectory directory;
  std::string notes;
  // Neither of two equal files is a tenth, so the split is the tail of the last one.
  write_bytes(directory / "two/a.txt", std::string(50, 'a'));
  write_bytes(directory / "two/b.txt", std::string(50, 'b'));
  const TokenBuilt two =
      run_build(small_build_of({(directory / "two").string()}, directory / "t.h5"), &notes);
  REQUIRE(two.tokens[kValidation] == 11);  // Out of 102.
  REQUIRE(documents_of(directory / "t.h5", "validation")[0] == std::string(10, 'b') + "|");
  REQUIRE(documents_of(directory / "t.h5", "train")[1] == std::string(40, 'b'));
  REQUIRE_THAT(notes, Contains("it is the last 11 of 102 tokens instead"));
  REQUIRE_THAT(FlatTokensReader(directory / "t.h5", "train").source(),
               Contains("the last 11 tokens held out") && !Contains("about 10 %"));
  // Whole documents, if they are small enough.
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "{\"text\": \"same length\"}\n";  // Equal hashes.
  write_bytes(directory / "same.jsonl", lines);
  run_build(small_build_of({(directory / "same.jsonl").string()}, directory / "t.h5"), &notes);
  REQUIRE(documents_of(directory / "t.h5", "validation") ==
          std::vector<std::string>{"same length|"});
  REQUIRE(documents_of(directory / "t.h5", "train").size() == 11);
  // A single document, with a hash for either split.
  for (const char* text : {"one document", "another one!", "and a third."}) {
    write_bytes(directory / "one.jsonl", fmt::format("{{\"text\": \"{}\"}}\n", text));
    const TokenBuilt one =
        run_build(small_build_of({(directory / "one.jsonl").string()}, directory / "t.h5",
                                 {.validation_fraction = 0.5}),
                  &notes);
    REQUIRE(one.tokens[kTrain] == 6);
    REQUIRE(one.tokens[kValidation] == 7);
  }
  write_bytes(directory / "one.jsonl", "{\"text\": \"abc\"}\n");
  const TokenBuilt few =
      run_build(small_build_of({(directory / "one.jsonl").string()}, directory / "t.h5"), &notes);
  REQUIRE(few.tokens[kValidation] == 0);
  REQUIRE_THAT(notes, Contains("warning: ") && Contains("has no validation split: 10 % of 4 tokens "
                                                        "is too little"));
  // No split was requested: no split and no message.
  run_build(small_build_of({(directory / "two").string()}, directory / "t.h5",
                           {.validation_fraction = 0.0}),
            &notes);
  REQUIRE(FlatTokensReader::splits(directory / "t.h5") == std::vector<std::string>{"train"});
  REQUIRE_THAT(notes, !Contains("held out") && !Contains("warning"));
}

int64_t tokens_of(const std::vector<std::string>& documents) {
  size_t size = 0;
  for (const std::string& document : documents) size += document.size();
  return static_cast<int64_t>(size);
}

// A document that in_validation_split assigns to `split`.
std::string document_for(Split split, size_t size, double fraction = 0.1) {
  for (char letter = 'a'; letter <= 'z'; ++letter)
    for (size_t count = 1; count <= size; ++count) {
      const std::string text = std::string(count, letter) + std::string(size - count, '.');
      if (in_validation_split(text, fraction) == (split == kValidation)) return text;
    }
  throw std::runtime_error("no such document");
}

TEST_CASE("a split far from the requested fraction is replaced by the tail") {
  const TemporaryDirectory directory;
  // Tokens of two documents with their splits, and the expected size of the validation split.
  struct Case {
    size_t train;
    size_t validation;
    int64_t held_out;
  };
  for (const Case& each : {Case{2, 30000, 3001}, Case{30000, 1, 3001}, Case{30000, 30000, 6001},
                           Case{30000, 2000, 2001}}) {
    CAPTURE(each.train, each.validation);
    const std::string train = document_for(kTrain, each.train);
    const std::string validation = document_for(kValidation, each.validation);
    write_bytes(directory / "a.jsonl",
                fmt::format("{{\"text\": \"{}\"}}\n{{\"text\": \"{}\"}}\n", validation, train));
    std::string first;
    for (const int threads : {1, 3}) {
      TokenBuild build = small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5");
      build.threads = threads;
      std::string notes;
      const TokenBuilt built = run_build(build, &notes);
      REQUIRE(built.tokens[kValidation] == each.held_out);
      std::string all;
      for (const char* split : {"train", "validation"})
        for (const std::string& document : documents_of(directory / "t.h5", split)) all += document;
      REQUIRE((all == train + "|" + validation + "|"));
      const bool is_by_document = each.validation == 2000;
      REQUIRE(notes.empty() == is_by_document);
      if (!is_by_document)
        REQUIRE_THAT(notes,
                     Contains(fmt::format(
                         "would have {} of {} tokens, not about 10 %, so it is the last {} of",
                         each.validation + 1, all.size(), each.held_out)));
      const std::string bytes = read_bytes(directory / "t.h5");
      if (first.empty()) first = bytes;
      REQUIRE((bytes == first));
    }
  }
}

TEST_CASE("a tail begins at a document only if that leaves half of the fraction") {
  const TemporaryDirectory directory;
  const auto held_out = [&](size_t first, size_t last) {
    std::string lines;
    for (const size_t size : {first, last})
      lines += fmt::format("{{\"text\": \"{}\"}}\n", document_for(kTrain, size));
    write_bytes(directory / "a.jsonl", lines);
    run_build(small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5"));
    return tokens_of(documents_of(directory / "t.h5", "validation"));
  };
  REQUIRE(held_out(1879, 119) == 120);  // Out of 2000: more than half of 200, at a document.
  REQUIRE(held_out(1899, 99) == 100);
  REQUIRE(held_out(1900, 98) == 200);
  REQUIRE(held_out(1993, 5) == 200);
  REQUIRE(held_out(1997, 1) == 200);
}

TEST_CASE("the tail is the same for any number of threads with --max_tokens") {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"same length\"}\n";  // Equal hashes.
  write_bytes(directory / "a.jsonl", lines);
  std::string first;
  for (const int threads : {1, 2, 3, 8}) {
    TokenBuild build = small_build_of({(directory / "a.jsonl").string()}, directory / "t.h5");
    build.threads = threads;
    build.max_tokens = 6000;
    const TokenBuilt built = run_build(build);
    REQUIRE(built.tokens[kTrain] == 5400);
    REQUIRE(built.tokens[kValidation] == 600);
    const std::string bytes = read_bytes(directory / "t.h5");
    if (first.empty()) first = bytes;
    REQUIRE((bytes == first));
  }
}

TEST_CASE("any range of a part file can be read") {
  const TemporaryDirectory directory;
  DocumentIds documents;
  documents.add(std::vector<int32_t>{0, 1, 2});
  documents.add(std::vector<int32_t>{3});
  documents.add(std::vector<int32_t>{4, 5});
  documents.add(std::vector<int32_t>{6, 7}, DocumentIds::kContinues);
  PartWriter writer(directory / "part", {});
  writer.append(documents);
  const std::set<int64_t> starts = {0, 3, 4};
  for (int64_t begin = 0; begin <= 8; ++begin)
    for (int64_t end = begin; end <= 8; ++end) {
      int64_t at = begin;
      read_part(directory / "part", writer.sizes(), {begin, end},
                [&](std::span<const int32_t> ids, bool continues) {
                  REQUIRE(continues == !starts.contains(at));
                  for (const int32_t id : ids) REQUIRE(id == at++);
                });
      REQUIRE(at == end);
    }
}

TEST_CASE("whole files keep their split in any location and with any other inputs") {
  const TemporaryDirectory directory;
  for (const char* place : {"here", "else/where"})
    for (int i = 0; i < 40; ++i)
      write_bytes(directory / fmt::format("{}/{}.txt", place, i), std::string(100, 'x'));
  for (int i = 0; i < 30; ++i) write_bytes(directory / fmt::format("more/{}.md", i), "added");
  const auto held_out = [&](const std::vector<std::string>& paths) {
    std::set<std::string> names;
    for (const BuildInput& input : find_build_inputs(paths, {.validation_fraction = 0.2}).inputs)
      if (input.validation_part == ValidationPart::kWhole && input.path.extension() == ".txt")
        names.insert(input.path.filename().string());
    return names;
  };
  const std::string here = (directory / "here").string();
  const std::set<std::string> names = held_out({here});
  REQUIRE(names.size() >= 4);
  REQUIRE(names.size() <= 14);
  REQUIRE(held_out({here + "/"}) == names);
  REQUIRE(held_out({(directory / "here/*.txt").string()}) == names);
  REQUIRE(held_out({(directory / "else/where").string()}) == names);
  REQUIRE(held_out({(directory / "more").string(), here}) == names);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory / "here");
  const std::set<std::string> inside = held_out({"."});
  std::filesystem::current_path(before);
  REQUIRE(inside == names);
}

TEST_CASE("a build refuses an invalid fraction") {
  for (const double fraction : {-0.1, 1.0, 2.0})
    REQUIRE_THROWS_WITH(find_build_inputs({}, {.validation_fraction = fraction}),
                        Catch::Contains("expected 0 <= validation_fraction < 1"));
}

}  // namespace
}  // namespace tessera
