// SPDX-License-Identifier: Apache-2.0
// Hosts that have files of equal names and sizes but other contents find it out at the start.
#include "inputs/readers/content_sample.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Entries = std::map<std::string, std::string>;

Entries entries_below(const fs::path& folder) {
  return content_entries(find_text_files({folder.string()}).files, 7);
}

TEST_CASE("one other byte in a small file, and another sampled block of a large one, are found") {
  const TemporaryDirectory directory;
  for (const char* host : {"one", "two"}) {
    write_bytes(directory / host / "a.txt", std::string(100000, 'x'));
    write_bytes(directory / host / "sub/b.txt", "equal");
  }
  REQUIRE(entries_below(directory / "one") == entries_below(directory / "two"));
  std::string other(100000, 'x');
  other[77777] = 'y';
  write_bytes(directory / "two/a.txt", other);
  const Entries one = entries_below(directory / "one"), two = entries_below(directory / "two");
  REQUIRE(one.at("content/a.txt") != two.at("content/a.txt"));
  REQUIRE(one.at("content/sub/b.txt") == two.at("content/sub/b.txt"));

  // Of a large source all blocks are read that the key chooses, and no others.
  constexpr int64_t kBytes = kWholeBytes + 3 * kSampledBlockBytes + 1;
  std::set<int64_t> read;
  const auto zeros = [&](int64_t at, std::span<std::byte> bytes) {
    REQUIRE(at % kSampledBlockBytes == 0);
    REQUIRE(at + static_cast<int64_t>(bytes.size()) <= kBytes);
    std::ranges::fill(bytes, std::byte{0});
    read.insert(at);
  };
  const std::string sample = content_text(kBytes, false, 7, zeros);
  REQUIRE(static_cast<int64_t>(read.size()) > kSampledBlocks - 8);
  const int64_t changed = *read.begin();
  const auto with_change = [&](int64_t at, std::span<std::byte> bytes) {
    zeros(at, bytes);
    if (at == changed) bytes.back() = std::byte{1};
  };
  REQUIRE(content_text(kBytes, false, 7, with_change) != sample);
  REQUIRE(content_text(kBytes, false, 8, zeros).find(" sample ") != std::string::npos);
}

TEST_CASE("many files have few entries, of which each file changes one") {
  const TemporaryDirectory directory;
  for (int i = 0; i < 130; ++i) write_bytes(directory / fmt::format("{:03}.txt", i), "text");
  const Entries before = entries_below(directory.path());
  REQUIRE(before.size() <= 64);
  REQUIRE(before.begin()->first == "content/000.txt to 002.txt");
  for (const int number : {0, 1, 2, 129}) {
    write_bytes(directory / fmt::format("{:03}.txt", number), "Text");
    REQUIRE(entries_below(directory.path()) != before);
    write_bytes(directory / fmt::format("{:03}.txt", number), "text");
  }
  REQUIRE(entries_below(directory.path()) == before);
}

// The entries of an input's state that are about contents.
Entries contents_of(BaseInput& input) {
  Entries entries;
  for (const auto& [key, value] : input.state().cursors)
    if (key.starts_with(kContentPrefix)) entries.emplace(key, value);
  return entries;
}

TEST_CASE("streams and token files of several hosts compare contents before the first batch") {
  const TemporaryDirectory directory;
  constexpr int kTokens = 70000;  // More than the fingerprint in checkpoints covers.
  for (const char* host : {"one", "two"}) {
    const bool is_one = host == std::string("one");
    write_bytes(directory / host / "a.jsonl",
                fmt::format("{{\"text\": \"{} documents\"}}\n", is_one ? "some" : "many"));
    FlatTokensWriter writer(directory / host / "t.h5", *make_tokenizer("bytes"));
    writer.begin_split("train");
    std::vector<int32_t> ids(kTokens, 7);
    if (!is_one) ids.back() = 8;
    writer.add_document(ids);
    writer.finish();
  }
  const auto open = [&](const std::string& host, int64_t hosts, bool streams) {
    const std::string folder = (directory / host).string();
    const StreamingTextInput::HParams text{
        .path = folder + "/*.jsonl", .global_batch_size = 2, .seq_len = 4};
    const FlatTokensInput::HParams tokens{
        .path = folder + "/t.h5", .global_batch_size = 2, .seq_len = 4};
    std::unique_ptr<BaseInput> input =
        (streams ? Template<BaseInput>(text) : Template<BaseInput>(tokens)).instantiate();
    input->attach({.infeed_host_index = 0, .num_infeed_hosts = hosts});
    return input;
  };
  for (const bool streams : {true, false}) {
    const auto one = open("one", 2, streams), two = open("two", 2, streams);
    REQUIRE(contents_of(*one).size() == 1);
    REQUIRE(contents_of(*one) != contents_of(*two));
    REQUIRE(one->state().cursors.at("data") == two->state().cursors.at("data"));
    REQUIRE(contents_of(*open("one", 2, streams)) == contents_of(*one));
    two->restore(one->state());  // A shard may be repaired before a run resumes.
    REQUIRE(contents_of(*open("one", 1, streams)).empty());
  }
  const auto tokens = open("one", 2, false);
  REQUIRE(tokens->get_next().has_value());
  REQUIRE(contents_of(*tokens).empty());
}

}  // namespace
}  // namespace tessera
