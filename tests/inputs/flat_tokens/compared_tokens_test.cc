// SPDX-License-Identifier: Apache-2.0
// Hosts whose token files have equal names and sizes but different tokens fail at the start.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/mixture/mixture_input.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Entries = std::map<std::string, std::string>;

// Writes one document of 100,000 tokens; the one at `other` differs.
void write_tokens(const fs::path& path, int64_t other = -1, int compression = 0) {
  fs::create_directories(path.parent_path());
  FlatTokensWriter writer(path, unknown_tokenizer(100), {.compression = compression});
  writer.begin_split("train");
  std::vector<int32_t> ids(100000, 7);
  if (other >= 0) ids[static_cast<size_t>(other)] = 8;
  writer.add_document(ids);
  writer.finish();
}

FlatTokensInput::HParams tokens_in(const fs::path& path) {
  return {.path = path.string(), .split = "train", .global_batch_size = 2, .seq_len = 4};
}

std::unique_ptr<BaseInput> open_input(const Template<BaseInput>& input_tpl, int64_t hosts = 2) {
  std::unique_ptr<BaseInput> input = input_tpl.instantiate();
  input->attach({.infeed_host_index = 0, .num_infeed_hosts = hosts});
  return input;
}

// The entries of an input's state that are about contents.
Entries contents_of(const BaseInput& input) {
  Entries entries;
  for (const auto& [key, value] : input.state().cursors)
    if (key.find(kContentPrefix) != std::string::npos) entries.emplace(key, value);
  return entries;
}

Entries contents_of(const Template<BaseInput>& input_tpl) {
  return contents_of(*open_input(input_tpl));
}

TEST_CASE("another token after the first ones of a file is found, other storage is not") {
  const TemporaryDirectory directory;
  write_tokens(directory / "one/a.h5");
  write_tokens(directory / "two/a.h5", -1, 3);
  write_tokens(directory / "three/a.h5", 80000);
  const Entries one = contents_of(tokens_in(directory / "one/a.h5"));
  REQUIRE(one.size() == 1);
  REQUIRE_THAT(one.at("content/a.h5"), Catch::StartsWith("400000 bytes, crc "));
  REQUIRE(contents_of(tokens_in(directory / "two/a.h5")) == one);
  REQUIRE(contents_of(tokens_in(directory / "three/a.h5")) != one);
}

TEST_CASE("tokens are compared before the first batch only, and only between hosts") {
  const TemporaryDirectory directory;
  write_tokens(directory / "a.h5");
  const Template<BaseInput> input_tpl = tokens_in(directory / "a.h5");
  REQUIRE(contents_of(*open_input(input_tpl, 1)).empty());
  const auto input = open_input(input_tpl);
  const InputState before = input->state();
  REQUIRE(input->get_next().has_value());
  REQUIRE(contents_of(*input).empty());
  const auto resumed = open_input(input_tpl);
  resumed->restore(input->state());
  REQUIRE(contents_of(*resumed).size() == 1);  // A resumed run compares them too.
  open_input(input_tpl, 1)->restore(before);
}

TEST_CASE("the files of a folder and of a mixture's sources are compared by name") {
  const TemporaryDirectory directory;
  for (const char* name : {"set/1.h5", "set/2.h5", "b.h5"}) write_tokens(directory / name);
  const FlatTokensInput::HParams set = tokens_in(directory / "set/*.h5");
  REQUIRE(contents_of(set).contains("content/2.h5"));
  const auto mixed = [&] {
    return contents_of(
        MixtureInput::HParams{.sources = {{"b", tokens_in(directory / "b.h5")}, {"set", set}},
                              .weights = {{"b", 0.5}, {"set", 0.5}},
                              .global_batch_size = 2,
                              .seq_len = 4});
  };
  const Entries before = mixed();
  REQUIRE(before.size() == 3);
  write_tokens(directory / "set/2.h5", 99999);
  Entries after = mixed();
  REQUIRE(after.at("source/set/content/2.h5") != before.at("source/set/content/2.h5"));
  after["source/set/content/2.h5"] = before.at("source/set/content/2.h5");
  REQUIRE(after == before);
}

}  // namespace
}  // namespace tessera
