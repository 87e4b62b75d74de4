// SPDX-License-Identifier: Apache-2.0
// Hosts whose shards have equal names and sizes but different contents fail at the start.
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "inputs/streaming/streaming_text_input.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Entries = std::map<std::string, std::string>;

std::unique_ptr<StreamingTextInput> open_stream(const fs::path& path, int64_t hosts = 2) {
  auto input = std::make_unique<StreamingTextInput>(StreamingTextInput::HParams{
      .path = path.string(), .validation_fraction = 0.0, .global_batch_size = 2, .seq_len = 4});
  input->attach({.infeed_host_index = 0, .num_infeed_hosts = hosts});
  return input;
}

// The entries of an input's state that are about contents.
Entries contents_of(const BaseInput& input) {
  Entries entries;
  for (const auto& [key, value] : input.state().cursors)
    if (key.starts_with(kContentPrefix)) entries.emplace(key, value);
  return entries;
}

TEST_CASE("other bytes in shards of equal names and sizes are found") {
  const TemporaryDirectory directory;
  const auto contents = [&](const char* host) {
    return contents_of(*open_stream(directory / host));
  };
  for (const char* host : {"one", "two"}) {
    write_bytes(directory / host / "a.txt", std::string(100000, 'x'));
    write_bytes(directory / host / "sub/b.txt", "equal");
  }
  const Entries one = contents("one");
  REQUIRE(one.size() == 2);
  REQUIRE(contents("two") == one);
  std::string other(100000, 'x');
  other[77777] = 'y';
  write_bytes(directory / "two/a.txt", other);
  REQUIRE(contents("two").at("content/a.txt") != one.at("content/a.txt"));
  REQUIRE(contents("two").at("content/sub/b.txt") == one.at("content/sub/b.txt"));

  // For a file of more than 64 MB only a sample is compared.
  constexpr size_t kLarge = (size_t{64} << 20) + 12289;
  for (const char* host : {"one", "two"}) fs::resize_file(directory / host / "a.txt", kLarge);
  REQUIRE(contents("two") == contents("one"));  // A difference that is in no block of the sample.
  write_bytes(directory / "two/a.txt", std::string(kLarge, 'y'));
  REQUIRE(contents("two").at("content/a.txt") != contents("one").at("content/a.txt"));
}

TEST_CASE("contents are compared before the first batch only, and only between hosts") {
  const TemporaryDirectory directory;
  write_bytes(directory / "one/a.jsonl", "{\"text\": \"some documents\"}\n");
  write_bytes(directory / "two/a.jsonl", "{\"text\": \"many documents\"}\n");
  const auto one = open_stream(directory / "one"), two = open_stream(directory / "two");
  REQUIRE(contents_of(*one) != contents_of(*two));
  REQUIRE(one->state().cursors.at("data") == two->state().cursors.at("data"));
  two->restore(
      open_stream(directory / "one", 1)->state());  // A shard may be repaired before a run resumes.
  REQUIRE(contents_of(*open_stream(directory / "one", 1)).empty());
  REQUIRE(one->get_next().has_value());
  REQUIRE(contents_of(*one).empty());
}

}  // namespace
}  // namespace tessera
