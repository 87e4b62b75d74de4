// SPDX-License-Identifier: Apache-2.0
// Manifests of token files: what they say of a build, and how two differ.
#include "inputs/flat_tokens/manifest.h"

#include "core/io/json.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "tests/support/build_tokens.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

std::string manifest_in(const std::filesystem::path& file) {
  return FlatTokensReader(file, "train").manifest();
}

// Twelve files with a record of each kind in each.
void write_broken_corpus(const std::filesystem::path& folder) {
  for (int file = 0; file < 12; ++file) {
    std::string lines = "{\"text\": \"\"}\nbroken\n{\"other\": 1}\n{\"text\": \"\xff\"}\n";
    for (int i = 0; i < 100; ++i) lines += fmt::format("{{\"text\": \"{} of {}\"}}\n", i, file);
    write_bytes(folder / fmt::format("{:02}.jsonl", file), lines + "{\"text\": 7}\n");
  }
}

TEST_CASE("a manifest has the files with checksums, and what was left out by reason") {
  const TemporaryDirectory directory;
  write_broken_corpus(directory / "corpus");
  TokenBuild build = small_build_of({(directory / "corpus").string()}, directory / "t.h5");
  build.read.corrupt_records = CorruptRecords::kSkip;
  run_build(build);
  const std::string manifest = manifest_in(directory / "t.h5");
  const Json json = parse_json(manifest, "manifest");
  const auto count = [&](const char* reason) { return json.at("skipped").at(reason).as_integer(); };
  REQUIRE(count("empty") == 12);
  REQUIRE(count("not valid JSON") == 12);
  REQUIRE(count("no field 'text'") == 12);
  REQUIRE(count("not UTF-8") == 12);
  REQUIRE(count("the field 'text' is a number") == 12);
  REQUIRE(json.at("files").as_object().size() == 12);
  const std::string bytes = read_bytes(directory / "corpus/03.jsonl");
  REQUIRE_THAT(json.at("files").at("03.jsonl").as_string(),
               Catch::StartsWith(fmt::format("{} bytes, crc ", bytes.size())));
  REQUIRE(json.at("options").at("tokenizer").as_string() == "ended bytes 257");
  REQUIRE_THAT(manifest_summary(manifest),
               Catch::StartsWith("12 files, by Tessera 0.") &&
                   Catch::Contains("; skipped: 12 empty, 12 no field 'text', 12 not UTF-8, "));
}

TEST_CASE("a manifest does not depend on threads, on where files are, or on a restart") {
  const TemporaryDirectory directory;
  write_broken_corpus(directory / "corpus");
  write_broken_corpus(directory / "moved");
  for (const int64_t max_tokens : {-1, 700, 4000}) {
    Lines manifests;
    for (const int threads : {1, 2, 5})
      for (const char* folder : {"corpus", "moved"}) {
        TokenBuild build = small_build_of({(directory / folder).string()}, directory / "t.h5");
        build.read.corrupt_records = CorruptRecords::kSkip;
        build.unit_bytes = 2000;
        build.max_tokens = max_tokens;
        build.threads = threads;
        run_build(build);
        manifests.push_back(manifest_in(directory / "t.h5"));
        REQUIRE(manifests.back() == manifests.front());
      }
  }
}

TEST_CASE("the work files of a build keep the reasons") {
  UnitProgress progress;
  progress.skipped.corrupt = {3, "a.jsonl:7: not UTF-8", {{"not UTF-8", 2}, {"not \"valid\"", 1}}};
  const auto [unit, read] = parse_journal_line(journal_line(5, progress), "journal");
  REQUIRE(unit == 5);
  REQUIRE(read.skipped.corrupt.reasons == progress.skipped.corrupt.reasons);
}

TEST_CASE("the differences of two manifests are a few lines") {
  const TemporaryDirectory directory;
  for (int file = 0; file < 9; ++file)
    write_bytes(directory / fmt::format("a/{}.txt", file), fmt::format("text of file {}", file));
  std::filesystem::copy(directory / "a", directory / "b");
  const auto build = [&](const std::string& folder, const BuildInputOptions& options) {
    const std::filesystem::path output = directory / (folder + ".h5");
    run_build(small_build_of({(directory / folder).string()}, output, options));
    return manifest_in(output);
  };
  const std::string a = build("a", {.validation_fraction = 0.0});
  REQUIRE(manifest_differences(a, build("b", {.validation_fraction = 0.0})) == Lines{});
  for (int file = 0; file < 7; ++file)
    std::filesystem::remove(directory / fmt::format("b/{}.txt", file));
  write_bytes(directory / "b/7.txt", "other of file 7");
  write_bytes(directory / "b/new.txt", "new");
  const Lines lines = manifest_differences(a, build("b", {.validation_fraction = 0.5}));
  REQUIRE(lines == Lines{"validation: 0, none held out, then 0.5, about 50 % held out",
                         "7 files only in the first: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt, …",
                         "1 files only in the second: new.txt",
                         "1 files with other contents: 7.txt"});
}

}  // namespace
}  // namespace tessera
