// SPDX-License-Identifier: Apache-2.0
// Batches whose size changes during a run: inputs give the rows that batches of one size have, each
// once, on any number of hosts and after a resume; and rows that are cut into shorter ones.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>

#include "core/base/error.h"
#include "inputs/base_input.h"
#include "inputs/checked_input.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/masked_input.h"
#include "inputs/mixture/mixture_input.h"
#include "inputs/prefetch.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/hosts.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Rows = std::vector<std::vector<std::byte>>;

// Rows of batches 0 to 2, 3 to 4, and from 5 on.
constexpr int64_t kSizes[] = {4, 8, 2};

// The infeed of a host, which has the equal share of each batch.
Infeed infeed_of(int64_t host, int64_t hosts) {
  Infeed infeed{.infeed_host_index = host, .num_infeed_hosts = hosts};
  const auto share = [&](int64_t rows) {
    return std::vector<RowRange>{{host * rows / hosts, (host + 1) * rows / hosts}};
  };
  infeed.rows = share(8);
  for (const auto& [first, rows] : {std::pair{0, kSizes[0]}, {3, kSizes[1]}, {5, kSizes[2]}})
    infeed.sizes.push_back({first, rows, share(rows)});
  return infeed;
}

// The input as the trainer opens it.
std::unique_ptr<BaseInput> opened(const Template<BaseInput>& input_tpl, const Infeed& infeed) {
  auto input = std::make_unique<Prefetch>(make_input(input_tpl), 3);
  input->attach(infeed);
  return input;
}

// The rows of each array, one after the other: of ids and of what belongs to the row.
void append_rows(const Batch& batch, Rows* rows) {
  const auto count = static_cast<size_t>(batch.at("ids").shape[0]);
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::byte>& row = rows->emplace_back();
    for (const auto& [name, array] : batch) {
      const size_t bytes = array.bytes.size() / count;
      std::copy_n(array.bytes.begin() + static_cast<std::ptrdiff_t>(i * bytes), bytes,
                  std::back_inserter(row));
    }
  }
}

// The rows of the next batches, which the input gets back, as all hosts have them.
Rows read(const std::vector<std::unique_ptr<BaseInput>>& hosts, int batches) {
  Rows rows;
  for (int i = 0; i < batches; ++i)
    for (const auto& host : hosts) {
      Batch batch = host->get_next().value();
      append_rows(batch, &rows);
      host->recycle(std::move(batch));
    }
  return rows;
}

std::vector<std::unique_ptr<BaseInput>> hosts_of(const Template<BaseInput>& input_tpl, int count) {
  std::vector<std::unique_ptr<BaseInput>> hosts;
  for (int i = 0; i < count; ++i) hosts.push_back(opened(input_tpl, infeed_of(i, count)));
  return hosts;
}

InputState state_of(const std::vector<std::unique_ptr<BaseInput>>& hosts) {
  InputState all = hosts[0]->state();
  for (const auto& host : hosts) all.cursors.merge(host->state().cursors);
  return all;
}

std::string tokens_in(const TemporaryDirectory& directory, const std::string& name) {
  FlatTokensWriter writer(directory / name, *make_tokenizer("bytes"));
  writer.begin_split("train");
  for (int i = 0; i < 60; ++i)
    writer.add_document(std::vector<int32_t>(static_cast<size_t>(3 + i % 29), 33 + i));
  writer.finish();
  return (directory / name).string();
}

std::string text_in(const TemporaryDirectory& directory) {
  for (int file = 0; file < 3; ++file) {
    std::string lines;
    for (int i = 0; i < 20; ++i)
      lines +=
          fmt::format("{{\"text\": \"{}\"}}\n", std::string(3 + (file * 20 + i) % 31, 'a' + i));
    write_bytes(directory / fmt::format("text/{}.jsonl", file), lines);
  }
  return (directory / "text").string();
}

std::vector<Template<BaseInput>> inputs_of(const TemporaryDirectory& directory, int64_t rows = 8) {
  const FlatTokensInput::HParams tokens{
      .path = tokens_in(directory, "a.h5"), .global_batch_size = rows, .seq_len = 12};
  FlatTokensInput::HParams others = tokens;
  others.path = tokens_in(directory, "b.h5");
  const SyntheticInput::HParams synthetic{
      .global_batch_size = rows, .seq_len = 12, .num_letters = 8, .distance = 3};
  const StreamingTextInput::HParams stream{.path = text_in(directory),
                                           .split = StreamSplit::kAll,
                                           .global_batch_size = rows,
                                           .seq_len = 12,
                                           .shuffle_documents = 4};
  const MixtureInput::HParams mixture{.sources = {{"a", tokens}, {"b", others}, {"stream", stream}},
                                      .weights = {{"a", 1.0}, {"b", 2.0}, {"stream", 2.0}},
                                      .block_size = 6,
                                      .global_batch_size = rows,
                                      .seq_len = 12};
  MixtureInput::HParams greedy = mixture;
  greedy.order = MixtureOrder::kGreedy;
  return {tokens,
          synthetic,
          MaskedInput::HParams{
              .input_tpl = synthetic, .mask_id = 0, .global_batch_size = rows, .seq_len = 12},
          stream,
          mixture,
          greedy};
}

TEST_CASE("batches of changing sizes have the rows of batches of one size, on any hosts") {
  const TemporaryDirectory directory;
  for (const Template<BaseInput>& input_tpl : inputs_of(directory)) {
    INFO(input_tpl.name());
    std::vector<std::unique_ptr<BaseInput>> plain;
    plain.push_back(make_input(input_tpl));
    plain[0]->attach({});
    const Rows expected = read(plain, 5);  // 40 rows: 3 batches of 4, 2 of 8, 6 of 2.
    for (const int count : {1, 2}) REQUIRE(read(hosts_of(input_tpl, count), 11) == expected);
  }
}

TEST_CASE("a resume before, at and after a change of the size gives the same rows") {
  const TemporaryDirectory directory;
  for (const Template<BaseInput>& input_tpl : inputs_of(directory)) {
    const Rows expected = read(hosts_of(input_tpl, 1), 11);
    for (const int before : {2, 3, 4, 5, 6}) {
      INFO(input_tpl.name() << " after " << before << " batches");
      const auto first = hosts_of(input_tpl, before % 2 + 1);
      Rows rows = read(first, before);
      const auto second = hosts_of(input_tpl, 2);
      read(second, 4);
      for (const auto& host : second) host->restore(state_of(first));
      REQUIRE(second[0]->state().position == before);
      std::ranges::copy(read(second, 11 - before), std::back_inserter(rows));
      REQUIRE(rows == expected);
    }
  }
}

TEST_CASE("a resume with other sizes of earlier batches is refused, and one of later ones not") {
  const Template<BaseInput> input_tpl =
      SyntheticInput::HParams{.global_batch_size = 8, .seq_len = 12, .num_letters = 8};
  const auto first = opened(input_tpl, infeed_of(0, 1));
  for (int i = 0; i < 4; ++i) first->get_next();
  const InputState state = first->state();
  Infeed other = infeed_of(0, 1);
  other.sizes[2].first_batch = 9;
  opened(input_tpl, other)->restore(state);
  other.sizes[1].first_batch = 2;
  REQUIRE_THAT(error_of([&] { opened(input_tpl, other)->restore(state); }),
               Contains("the run has read 20 rows in 4 batches; with the current sizes of batches "
                        "it would be 24"));
  for (int i = 0; i < 2; ++i) first->get_next();
  REQUIRE_THAT(first->state().cursors.at("examples"), Catch::Equals("30"));
}

// At least `count` rows that one host reads from a state on.
Rows rows_in_batches(const Template<BaseInput>& input_tpl, size_t count, const InputState* state,
                     InputState* after) {
  std::vector<std::unique_ptr<BaseInput>> host;
  host.push_back(opened(input_tpl, {}));
  if (state != nullptr) host[0]->restore(*state);
  Rows rows;
  while (rows.size() < count) std::ranges::move(read(host, 1), std::back_inserter(rows));
  if (after != nullptr) *after = host[0]->state();
  return rows;
}

TEST_CASE("a run resumed with batches of other sizes goes on with the next row") {
  const TemporaryDirectory directory;
  std::map<int64_t, std::vector<Template<BaseInput>>> of_size;
  for (const int64_t size : {8, 3, 7, 2, 32, 5}) of_size[size] = inputs_of(directory, size);
  for (size_t i = 0; i < of_size[8].size(); ++i) {
    InputState end;
    const Rows expected = rows_in_batches(of_size[8][i], 120, nullptr, &end);
    for (const auto& [second, third] : {std::pair{3, 8}, {7, 2}, {32, 5}}) {
      INFO(of_size[8][i].name() << " in batches of 8, " << second << " and " << third);
      InputState state;
      Rows rows = rows_in_batches(of_size[8][i], 24, nullptr, &state);
      for (const int64_t size : {second, third})
        std::ranges::move(rows_in_batches(of_size[size][i], 30, &state, &state),
                          std::back_inserter(rows));
      REQUIRE(rows.size() >= 84);
      REQUIRE(std::equal(rows.begin(), rows.end(), expected.begin()));
    }
  }
}

TEST_CASE("rows that are cut are those of an input with shorter rows") {
  const TemporaryDirectory directory;
  const std::string tokens = tokens_in(directory, "a.h5");
  // Eight batches of the same tokens.
  const auto batches_of = [&](int64_t rows, int64_t seq_len) {
    const auto input = make_input(FlatTokensInput::HParams{
        .path = tokens, .global_batch_size = rows, .seq_len = seq_len, .shuffle = Shuffle::kNone});
    input->attach({});
    std::vector<Batch> batches;
    for (int i = 0; i < 8; ++i) batches.push_back(input->get_next().value());
    return batches;
  };
  for (const int64_t seq_len : {4, 8, 16}) {
    INFO("seq_len " << seq_len);
    std::vector<Batch> batches = batches_of(2, 16);
    std::vector<Batch> expected = batches_of(32 / seq_len, seq_len);
    for (size_t i = 0; i < batches.size(); ++i) {
      cut_rows(batches[i], seq_len);
      REQUIRE(same_shapes(batches[i], expected[i]));
      if (seq_len < 16) std::ranges::fill(expected[i].at("label_bytes").bytes, std::byte{0});
      REQUIRE(same_batch(batches[i], expected[i]));
    }
  }
}

}  // namespace
}  // namespace tessera
