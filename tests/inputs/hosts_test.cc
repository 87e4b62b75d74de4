// SPDX-License-Identifier: Apache-2.0
// Every input has the same global batches for any assignment of rows to hosts, resumes on another
// number of hosts, and ends on all hosts at once.
#include "tests/support/hosts.h"

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/flat_tokens/text_input.h"
#include "inputs/masked_input.h"
#include "inputs/mixture/mixture_input.h"
#include "inputs/score_requests.h"
#include "inputs/span_corruption_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kBatch = 8;
constexpr int64_t kSeqLen = 12;

// Documents of 1 to 40 bytes.
std::string document(int number) {
  std::string text = fmt::format("<{}>", number);
  for (int i = 0; i < (number * 7) % 37; ++i) text += static_cast<char>('a' + (number + i) % 26);
  return text;
}

struct Data {
  Data() {
    for (int shard = 0; shard < 11; ++shard) {
      std::string lines;
      for (int i = 0; i < 9; ++i)
        lines += fmt::format("{{\"text\": \"{}\"}}\n", document(100 * shard + i));
      write_bytes(directory / fmt::format("many/{:02}.jsonl", shard), lines);
      if (shard < 3) write_bytes(directory / fmt::format("few/{}.jsonl", shard), lines);
      write_bytes(directory / fmt::format("text/{}.txt", shard), lines);
    }
    std::string requests;
    for (int i = 0; i < 30; ++i)
      requests +=
          fmt::format("{{\"context_ids\": [{}, 2], \"continuation_ids\": [3, {}]}}\n", i, i);
    write_bytes(directory / "requests.jsonl", requests);
    write_tokens("tokens.h5", 60);
    write_tokens("set/1.h5", 25);
    write_tokens("set/2.h5", 17);
    fs::create_directories(directory / "run");
  }
  void write_tokens(const std::string& name, int documents) {
    fs::create_directories((directory / name).parent_path());
    FlatTokensWriter writer(directory / name, *make_tokenizer("bytes"));
    writer.begin_split("train");
    for (int i = 0; i < documents; ++i)
      writer.add_document(make_tokenizer("bytes")->encode(document(i)));
    writer.finish();
  }
  TemporaryDirectory directory;
};

// Every host that is opened has another number of threads.
template <typename Input>
Hosts::Open opener(typename Input::HParams p) {
  p.global_batch_size = kBatch;
  p.seq_len = kSeqLen;
  return [p]() mutable {
    if constexpr (requires { p.num_workers; }) p.num_workers = p.num_workers % 3 + 1;
    return Template<BaseInput>(p).instantiate();
  };
}

// Opens a mixture of tokens.h5 and the set beside it, with changing weights.
Hosts::Open mixture_opener(const Data& data, Exhausted exhausted, bool tokens_repeat = true) {
  const FlatTokensInput::HParams tokens{.path = (data.directory / "tokens.h5").string(),
                                        .repeat = tokens_repeat};
  FlatTokensInput::HParams set{
      .path = (data.directory / "set/*.h5").string(), .shuffle = Shuffle::kEra, .era_length = 7};
  set.repeat = exhausted == Exhausted::kRestart;
  const Template<BaseInput> mixture =
      MixtureInput::HParams{.sources = {{"set", set}, {"tokens", tokens}},
                            .weights = {{"set", 1.0}, {"tokens", 3.0}},
                            .stages = {{.step = 3, .weights = {{"set", 1.0}, {"tokens", 0.5}}}},
                            .exhausted = exhausted,
                            .block_size = 12,
                            .global_batch_size = kBatch,
                            .seq_len = kSeqLen};
  return [mixture] { return mixture.instantiate(); };
}

// Opens a mixture of a stream, of token files and of a mixture of streams.
Hosts::Open streams_opener(const Data& data, MixtureOrder order) {
  const StreamingTextInput::HParams stream{.path = (data.directory / "many").string(),
                                           .validation_docs_per_file = 2,
                                           .shuffle_documents = 4};
  StreamingTextInput::HParams few = stream;
  few.path = (data.directory / "few/*.jsonl").string();
  few.global_batch_size = 3;  // The rows of a mixture do not depend on the batches of sources.
  const MixtureInput::HParams inner{.sources = {{"few", few}, {"many", stream}},
                                    .weights = {{"few", 1.0}, {"many", 1.0}},
                                    .block_size = 6};
  const FlatTokensInput::HParams tokens{.path = (data.directory / "tokens.h5").string()};
  return opener<MixtureInput>(
      {.sources = {{"inner", inner}, {"stream", stream}, {"tokens", tokens}},
       .weights = {{"inner", 1.0}, {"stream", 2.0}, {"tokens", 1.0}},
       .order = order,
       .block_size = 12});
}

struct Case {
  std::string name;
  Hosts::Open open;
};

std::vector<Case> cases(const Data& data) {
  const std::string tokens = (data.directory / "tokens.h5").string();
  const std::string set = (data.directory / "set/*.h5").string();
  const std::string many = (data.directory / "many").string();
  const std::string few = (data.directory / "few/*.jsonl").string();
  return {
      {"flat tokens", opener<FlatTokensInput>({.path = tokens})},
      {"flat tokens, one epoch",
       opener<FlatTokensInput>({.path = tokens, .shuffle = Shuffle::kNone, .repeat = false})},
      {"flat tokens in eras",
       opener<FlatTokensInput>({.path = tokens, .shuffle = Shuffle::kEra, .era_length = 10})},
      {"flat tokens, a document a row", opener<FlatTokensInput>({.path = tokens, .packed = false})},
      {"flat tokens, documents that share rows",
       opener<FlatTokensInput>({.path = tokens, .packed = false, .best_fit = true})},
      {"a set of flat tokens", opener<FlatTokensInput>({.path = set, .shuffle = Shuffle::kEra})},
      {"a mixture", mixture_opener(data, Exhausted::kRestart)},
      {"a mixture that a source leaves", mixture_opener(data, Exhausted::kStop)},
      {"a mixture that all sources leave", mixture_opener(data, Exhausted::kStop, false)},
      {"a mixture of streams", streams_opener(data, MixtureOrder::kBlocks)},
      {"a mixture of streams in the order of Megatron",
       streams_opener(data, MixtureOrder::kGreedy)},
      {"text", opener<TextInput>({.path = (data.directory / "text").string()})},
      {"text, one epoch", opener<TextInput>({.path = (data.directory / "text").string(),
                                             .split = "validation",
                                             .shuffle = false,
                                             .repeat = false})},
      {"synthetic", opener<SyntheticInput>({.num_letters = 8, .distance = 3})},
      {"requests", opener<RequestsInput>({.path = (data.directory / "requests.jsonl").string()})},
      {"synthetic, five batches",
       opener<SyntheticInput>({.num_letters = 8, .distance = 3, .num_batches = 5})},
      {"masked synthetic",
       opener<MaskedInput>(
           {.input_tpl = SyntheticInput::HParams{.num_letters = 8, .distance = 3}, .mask_id = 0})},
      {"corrupted spans of streams",
       opener<SpanCorruptionInput>(
           {.input_tpl = StreamingTextInput::HParams{.path = many, .labels = Labels::kShiftRight},
            .first_sentinel_id = 1000})},
      {"masked streams, one epoch",
       opener<MaskedInput>({.input_tpl =
                                StreamingTextInput::HParams{
                                    .path = many, .labels = Labels::kShiftRight, .repeat = false},
                            .mask_id = 0})},
      {"streams of more shards than rows", opener<StreamingTextInput>({.path = many})},
      {"streams of fewer shards than rows",
       opener<StreamingTextInput>({.path = few, .shuffle_documents = 3})},
      {"streams, one epoch", opener<StreamingTextInput>({.path = many,
                                                         .split = StreamSplit::kAll,
                                                         .labels = Labels::kShiftRight,
                                                         .repeat = false})},
      {"streams, held-out documents", opener<StreamingTextInput>({.path = few,
                                                                  .split = StreamSplit::kValidation,
                                                                  .validation_fraction = 0.4,
                                                                  .repeat = false})},
      {"streams, the first documents of each file",
       opener<StreamingTextInput>({.path = many,
                                   .split = StreamSplit::kValidation,
                                   .validation_docs_per_file = 3,
                                   .repeat = false})},
      {"streams, seven batches", opener<StreamingTextInput>({.path = many, .num_batches = 7})},
  };
}

// One host's batches, at most `count`, and the states before each of them.
struct Expected {
  std::vector<std::optional<Batch>> batches;
  std::vector<InputState> states;
};

Expected expected_of(const Case& one, const fs::path& run_directory, int count = 40) {
  Hosts host(one.open, shares_of_eight()[0], run_directory);
  Expected expected;
  for (int i = 0; i < count; ++i) {
    expected.states.push_back(host.state());
    expected.batches.push_back(host.next());
  }
  return expected;
}

TEST_CASE("hosts read the rows of one host's batches, and end together, for every input") {
  const Data data;
  int finite = 0;
  for (const Case& one : cases(data)) {
    const Expected expected = expected_of(one, data.directory / "run");
    finite += expected.batches.back() ? 0 : 1;
    REQUIRE(expected.batches[1]);
    for (const RowsOfHosts& rows : shares_of_eight()) {
      INFO(one.name << " for " << text_of(rows));
      Hosts hosts(one.open, rows, data.directory / "run");
      for (const std::optional<Batch>& batch : expected.batches)
        REQUIRE(same_batch(hosts.next(), batch));
    }
  }
  REQUIRE(finite == 10);
}

TEST_CASE("every input resumes on another number of hosts") {
  const Data data;
  for (const Case& one : cases(data)) {
    const Expected expected = expected_of(one, data.directory / "run");
    size_t from = 0;
    for (const RowsOfHosts& before : shares_of_eight()) {
      // At various positions, including the end.
      from = (from + 7) % expected.batches.size();
      INFO(one.name << " from batch " << from << " of " << text_of(before));
      Hosts first(one.open, before, data.directory / "run");
      for (size_t i = 0; i < from; ++i) first.next();
      const InputState state = first.state();
      REQUIRE(state.position == expected.states[from].position);
      REQUIRE(state.cursors == expected.states[from].cursors);
      for (const RowsOfHosts& after : {shares_of_eight()[3], shares_of_eight()[5]}) {
        Hosts second(one.open, after, data.directory / "run");
        second.next();
        second.restore(state);
        for (size_t i = from; i < expected.batches.size(); ++i)
          REQUIRE(same_batch(second.next(), expected.batches[i]));
        second.reset();
        REQUIRE(same_batch(second.next(), expected.batches[0]));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
