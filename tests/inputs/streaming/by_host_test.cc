// SPDX-License-Identifier: Apache-2.0
// Streams whose hosts read their own files (sharding=by_host): every document once, exact resume,
// uneven hosts, and what is refused.
#include <algorithm>

#include "core/base/error.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/hosts.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

// Files of documents "<file>.<number>;", `counts[i]` in file i, written by name.
Words write_numbered(const TemporaryDirectory& directory, const std::vector<int>& counts,
                     const std::function<std::string(size_t)>& name_of) {
  Words documents;
  for (size_t i = 0; i < counts.size(); ++i) {
    std::string lines;
    for (int n = 0; n < counts[i]; ++n) {
      documents.push_back(fmt::format("{}.{};", i, n));
      lines += fmt::format("{{\"text\": \"{}\"}}\n", documents.back());
    }
    write_bytes(directory / name_of(i), lines);
  }
  std::ranges::sort(documents);
  return documents;
}

StreamingTextInput::HParams by_host(const std::filesystem::path& path) {
  return {.path = path.string(),
          .sharding = Sharding::kByHost,
          .split = StreamSplit::kAll,
          .global_batch_size = 4,
          .seq_len = 10,
          .labels = Labels::kShiftRight,
          .repeat = false};
}

Hosts::Open opened_by_host(const StreamingTextInput::HParams& p) {
  return [p] { return std::make_unique<StreamingTextInput>(p); };
}

const RowsOfHosts kTwoHosts = {{{0, 2}}, {{2, 4}}};
const RowsOfHosts kFourHosts = {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}};

// The documents that are read from here on, sorted.
Words documents_read(Hosts& hosts) {
  const auto bytes = make_tokenizer("bytes");
  Words rows(4);
  while (const auto batch = hosts.next())
    for (size_t at = 0; at < 40; ++at)
      if (batch->at("paddings").data<float>()[at] == 0.0f)
        rows[at / 10] += bytes->decode({batch->at("labels").data<int32_t>()[at]});
  Words documents;
  for (const std::string& row : rows)
    for (size_t begin = 0, end = 0; begin < row.size(); begin = end) {
      end = row.find(';', begin) + 1;
      documents.push_back(row.substr(begin, end - begin));
    }
  std::ranges::sort(documents);
  return documents;
}

std::string numbered_name(size_t i) { return fmt::format("{}.jsonl", i); }

TEST_CASE("hosts that read their own files read every document once, however uneven they are") {
  for (const RowsOfHosts& rows : {kTwoHosts, kFourHosts}) {
    const TemporaryDirectory shared;
    const Words documents = write_numbered(shared, {9, 2, 14, 5, 30, 1}, numbered_name);
    Hosts hosts(opened_by_host(by_host(shared.path())), rows);
    REQUIRE(documents_read(hosts) == documents);

    const TemporaryDirectory own;
    const Words each = write_numbered(own, std::vector<int>(rows.size(), 7),
                                      [](size_t i) { return fmt::format("host{}/a.jsonl", i); });
    Hosts apart(opened_by_host(by_host(own / "host{host}")), rows);
    REQUIRE(documents_read(apart) == each);
  }
}

TEST_CASE("hosts that read their own files resume exactly, and only as many as they were") {
  const TemporaryDirectory directory;
  write_numbered(directory, {20, 25, 30, 35}, numbered_name);
  StreamingTextInput::HParams p = by_host(directory.path());
  p.repeat = true;
  Hosts whole(opened_by_host(p), kTwoHosts);
  for (int step = 0; step < 40; ++step) {
    const InputState state = whole.state();
    const auto batch = whole.next();
    if (step % 7 != 0) continue;
    Hosts resumed(opened_by_host(p), kTwoHosts);
    resumed.restore(state);
    REQUIRE(same_batch(resumed.next(), batch));
  }
  Hosts more(opened_by_host(p), kFourHosts);
  REQUIRE_THROWS_WITH(more.restore(whole.state()),
                      Contains("no position of host 0 of 4") &&
                          Contains("resumes on as many hosts as the run had"));
}

TEST_CASE("shared rows, too few files and a file that two hosts have are seen") {
  const TemporaryDirectory directory;
  write_numbered(directory, {3}, numbered_name);
  const auto attach = [&](const std::filesystem::path& path, int64_t host, RowRange rows) {
    auto input = std::make_unique<StreamingTextInput>(by_host(path));
    input->attach({.infeed_host_index = host, .num_infeed_hosts = 2, .rows = {rows}});
    return input;
  };
  REQUIRE_THROWS_WITH(attach(directory.path(), 0, {0, 4}),
                      Contains("host 0 has 4 of 4 rows; each row must be on one host"));
  REQUIRE_THROWS_WITH(attach(directory.path(), 1, {2, 4}), Contains("1 files are too few for 2"));
  // Processes compare entries of one name: those of one content have different readers.
  write_numbered(directory, {3, 4},
                 [](size_t i) { return fmt::format("other/host{}/{}.jsonl", i, i); });
  std::filesystem::copy(directory / "other/host0/0.jsonl", directory / "other/host1/copy.jsonl");
  const auto first = attach(directory / "other/host{host}", 0, {0, 2})->state().cursors;
  const auto second = attach(directory / "other/host{host}", 1, {2, 4})->state().cursors;
  int conflicts = 0;
  for (const auto& [key, value] : first)
    conflicts +=
        key.starts_with("content/reader of ") && second.contains(key) && second.at(key) != value;
  REQUIRE(conflicts == 1);
}

}  // namespace
}  // namespace tessera
