// SPDX-License-Identifier: Apache-2.0
// Mixtures as streams of batches: exact counts, ends, resume, and errors.
#include "inputs/mixture/mixture_input.h"

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/flat_tokens/text_input.h"
#include "inputs/synthetic_input.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int64_t kSeqLen = 4;

// Files with the given numbers of rows; the labels of row i of a file are i, i, i, i.
class Corpora {
 public:
  FlatTokensInput::HParams rows(const std::string& name, int64_t count, bool repeat) {
    const std::filesystem::path path = directory_ / (name + ".h5");
    if (!std::filesystem::exists(path)) write(path, count, {"numbers", "numbers-1", "", 1000});
    return {.path = path.string(),
            .labels = Labels::kShiftRight,
            .shuffle = Shuffle::kNone,
            .repeat = repeat};
  }
  static void write(const std::filesystem::path& path, int64_t count,
                    const TokenizerIdentity& tokenizer) {
    FlatTokensWriter writer(path, tokenizer);
    writer.begin_split("train");
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count * kSeqLen; ++i) ids.push_back(static_cast<int32_t>(i / kSeqLen));
    writer.add_document(ids);
    writer.finish();
  }
  std::filesystem::path path(const std::string& name) const { return directory_ / name; }

 private:
  TemporaryDirectory directory_;
};

MixtureInput::HParams mixture(std::map<std::string, Template<BaseInput>> sources,
                              std::map<std::string, double> weights) {
  return {.sources = std::move(sources),
          .weights = std::move(weights),
          .block_size = 10,
          .global_batch_size = 5,
          .seq_len = kSeqLen};
}

std::unique_ptr<BaseInput> open(const MixtureInput::HParams& p) {
  std::unique_ptr<BaseInput> input = Template<BaseInput>(p).instantiate();
  input->attach({});
  return input;
}

// A row of a batch: its source, and its number in the source.
struct Row {
  int32_t source = 0;
  int32_t number = 0;
  bool counts = true;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const Batch& batch) {
  std::vector<Row> rows;
  for (int64_t row = 0; row < batch.at("ids").shape[0]; ++row)
    rows.push_back({batch.at("source").data<int32_t>()[row],
                    batch.at("labels").data<int32_t>()[row * kSeqLen],
                    batch.at("eval_sample_weights").data<float>()[row] == 1.0f});
  return rows;
}

std::vector<Row> take(BaseInput& input, int batches) {
  std::vector<Row> all;
  for (int i = 0; i < batches; ++i) {
    const auto batch = input.get_next();
    if (!batch) break;
    const std::vector<Row> rows = rows_of(*batch);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST_CASE("weights are exact in each block, and each source's rows are in order") {
  Corpora corpora;
  const auto p = mixture({{"code", corpora.rows("code", 300, true)},
                          {"books", corpora.rows("books", 200, true)},
                          {"web", corpora.rows("web", 900, true)}},
                         {{"code", 0.3}, {"books", 0.0}, {"web", 0.7}});
  const auto input = open(p);
  REQUIRE(input->sources() == std::vector<std::string>{"books", "code", "web"});
  const std::vector<Row> rows = take(*input, 100);
  std::vector<int32_t> next(3);
  for (size_t block = 0; block < 50; ++block) {
    std::vector<int> counts(3);
    for (size_t i = 0; i < 10; ++i) {
      const Row& row = rows[block * 10 + i];
      ++counts[static_cast<size_t>(row.source)];
      REQUIRE(row.number == next[static_cast<size_t>(row.source)]++);
    }
    REQUIRE(counts == std::vector<int>{0, 3, 7});
  }
}

TEST_CASE("weights change at the steps of their stages") {
  Corpora corpora;
  auto p = mixture({{"a", corpora.rows("a", 900, true)}, {"b", corpora.rows("b", 900, true)}},
                   {{"a", 1.0}, {"b", 0.0}});
  p.stages = {{.step = 4, .weights = {{"a", 1.0}, {"b", 1.0}}},
              {.step = 10, .weights = {{"a", 0.0}, {"b", 2.0}}}};
  const std::vector<Row> rows = take(*open(p), 16);
  const auto of_b = [&](int first_step, int end_step) {
    int count = 0;
    for (int i = first_step * 5; i < end_step * 5; ++i)
      count += rows[static_cast<size_t>(i)].source;
    return count;
  };
  REQUIRE(of_b(0, 4) == 0);
  REQUIRE(of_b(4, 6) == 5);
  REQUIRE(of_b(4, 10) == 15);
  REQUIRE(of_b(10, 16) == 30);
}

TEST_CASE("a mixture resumes exactly, at any position and with another batch size") {
  Corpora corpora;
  auto p = mixture({{"a", corpora.rows("a", 37, true)}, {"b", corpora.rows("b", 11, true)}},
                   {{"a", 2.0}, {"b", 1.0}});
  p.stages = {{.step = 4, .weights = {{"a", 1.0}, {"b", 1.0}}}};
  const auto straight = open(p);
  std::vector<InputState> states;
  std::vector<Row> rows;
  for (int i = 0; i < 40; ++i) {
    states.push_back(straight->state());
    const std::vector<Row> more = take(*straight, 1);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  const auto resumed = open(p);
  for (size_t from = 0; from < states.size(); ++from) {
    resumed->restore(states[from]);
    const std::vector<Row> rest = take(*resumed, 3);
    for (size_t i = 0; i < rest.size() && from * 5 + i < rows.size(); ++i)
      REQUIRE(rest[i] == rows[from * 5 + i]);
  }
  p.global_batch_size = 10;
  p.stages[0].step = 2;
  const auto as_before = open(p);
  as_before->restore(states[8]);
  const std::vector<Row> rest = take(*as_before, 2);
  for (size_t i = 0; i < rest.size(); ++i) REQUIRE(rest[i] == rows[40 + i]);
}

TEST_CASE("an exhausted source repeats, leaves the mixture or is an error, as configured") {
  Corpora corpora;
  auto p = mixture(
      {{"long", corpora.rows("long", 900, false)}, {"short", corpora.rows("short", 7, false)}},
      {{"long", 1.0}, {"short", 1.0}});
  p.exhausted = Exhausted::kRestart;
  const std::vector<Row> restarted = take(*open(p), 20);
  REQUIRE(restarted.size() == 100);
  int32_t of_short = 0;
  size_t end = 0;  // Rows before the eighth row of short.
  for (size_t i = 0; i < restarted.size(); ++i) {
    if (restarted[i].source == 0) continue;
    if (of_short == 7) end = i;
    REQUIRE(restarted[i].number == of_short++ % 7);
  }
  REQUIRE(end > 10);
  REQUIRE(end < 20);

  p.exhausted = Exhausted::kStop;
  // 893 rows of long follow the 14 in the blocks shared with short.
  const std::vector<Row> stopped = take(*open(p), 400);
  REQUIRE(stopped.size() == 910);
  std::vector<int32_t> next(2);
  for (size_t i = 0; i < 907; ++i) {
    REQUIRE(stopped[i].counts);
    REQUIRE(stopped[i].number == next[static_cast<size_t>(stopped[i].source)]++);
    if (i < 10) REQUIRE(stopped[i] == restarted[i]);
    if (i == 19) REQUIRE(next == std::vector<int32_t>{13, 7});
  }
  REQUIRE(next == std::vector<int32_t>{900, 7});
  // The last batch is padded.
  for (size_t i = 907; i < 910; ++i) REQUIRE(stopped[i] == Row{0, 0, false});

  p.exhausted = Exhausted::kRaise;
  const auto raising = open(p);
  REQUIRE(
      take(*raising, static_cast<int>(end / 5)) ==
      std::vector<Row>(restarted.begin(), restarted.begin() + static_cast<int64_t>(end / 5 * 5)));
  for (int again = 0; again < 2; ++again)
    REQUIRE_THROWS_WITH(raising->get_next(), Contains("source 'short' is exhausted: its 7 rows"));
  // A stream that ends earlier is not an error.
  p.num_batches = static_cast<int64_t>(end / 5);
  const auto ending = open(p);
  take(*ending, static_cast<int>(end / 5));
  REQUIRE_FALSE(ending->get_next());
}

TEST_CASE("sources that repeat continue after all others have left") {
  Corpora corpora;
  auto p = mixture(
      {{"long", corpora.rows("long", 32, false)}, {"short", corpora.rows("short", 5, true)}},
      {{"long", 1.0}, {"short", 1.0}});
  p.exhausted = Exhausted::kStop;
  const auto input = open(p);
  REQUIRE(input->repeats());
  const std::vector<Row> rows = take(*input, 100);
  REQUIRE(rows.size() == 500);
  int64_t of_long = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    of_long += rows[i].source == 0 ? 1 : 0;
    if (i == 59) REQUIRE(of_long == 30);  // Six full blocks.
    if (i == 69) REQUIRE(of_long == 32);  // Its last two rows are in the seventh.
  }
  REQUIRE(of_long == 32);
  p.sources.at("long") = corpora.rows("long", 32, true);
  REQUIRE_THROWS_WITH(open(p), Contains("exhausted=stop, but every source repeats"));
}

TEST_CASE("remaining sources share the rows of one that left by weight") {
  Corpora corpora;
  auto p = mixture({{"a", corpora.rows("a", 60, false)},
                    {"b", corpora.rows("b", 13, false)},
                    {"c", corpora.rows("c", 200, false)}},
                   {{"a", 3.0}, {"b", 5.0}, {"c", 2.0}});
  p.stages = {{.step = 8, .weights = {{"a", 1.0}, {"b", 5.0}, {"c", 4.0}}}};
  p.exhausted = Exhausted::kStop;
  const std::vector<Row> rows = take(*open(p), 100);
  const auto counts_of = [&](size_t block) {
    std::vector<int> counts(3);
    for (size_t i = 10 * block; i < std::min(10 * block + 10, rows.size()); ++i)
      if (rows[i].counts) ++counts[static_cast<size_t>(rows[i].source)];
    return counts;
  };
  REQUIRE(counts_of(0) == std::vector<int>{3, 5, 2});
  REQUIRE(counts_of(1) == std::vector<int>{3, 5, 2});
  REQUIRE(counts_of(2) == std::vector<int>{4, 3, 3});  // The last of b; 3 : 2 of the other seven.
  REQUIRE(counts_of(3) == std::vector<int>{6, 0, 4});
  REQUIRE(counts_of(4) == std::vector<int>{2, 0, 8});  // The stage of step 8: 1 : 4.
  REQUIRE(counts_of(25) == std::vector<int>{2, 0, 8});
  REQUIRE(counts_of(26) == std::vector<int>{0, 0, 10});  // a is exhausted too.
  REQUIRE(counts_of(27) == std::vector<int>{0, 0, 3});
  REQUIRE(rows.size() == 275);
  // A stage that names only exhausted sources ends the stream.
  p.stages = {{.step = 8, .weights = {{"a", 0.0}, {"b", 1.0}, {"c", 0.0}}}};
  REQUIRE(take(*open(p), 100).size() == 40);
}

TEST_CASE("a mixture resumes exactly before, at and after every row at which a source leaves") {
  Corpora corpora;
  auto p = mixture({{"a", corpora.rows("a", 23, false)},
                    {"b", corpora.rows("b", 9, false)},
                    {"c", corpora.rows("c", 41, false)}},
                   {{"a", 1.0}, {"b", 1.0}, {"c", 1.0}});
  p.exhausted = Exhausted::kStop;
  for (const int64_t batch_size : {1, 2, 5, 7}) {
    p.global_batch_size = batch_size;
    const auto straight = open(p);
    std::vector<InputState> states;
    std::vector<std::vector<Row>> batches;
    do {
      states.push_back(straight->state());
      batches.push_back(take(*straight, 1));
    } while (!batches.back().empty());
    REQUIRE(batches.size() == static_cast<size_t>((73 + batch_size - 1) / batch_size + 1));
    for (size_t from = 0; from < states.size(); ++from) {
      const auto resumed = open(p);
      resumed->restore(states[from]);
      for (size_t i = from; i < batches.size(); ++i) REQUIRE(take(*resumed, 1) == batches[i]);
      REQUIRE(resumed->state().cursors == straight->state().cursors);
    }
  }
}

TEST_CASE("an evaluation of a mixture covers every row of every source once") {
  Corpora corpora;
  auto inner = mixture({{"c", corpora.rows("c", 4, false)}, {"d", corpora.rows("d", 30, false)}},
                       {{"c", 2.0}, {"d", 1.0}});
  inner.exhausted = Exhausted::kStop;
  auto p = mixture(
      {{"a", corpora.rows("a", 1, false)}, {"b", corpora.rows("b", 57, false)}, {"inner", inner}},
      {{"a", 1.0}, {"b", 3.0}, {"inner", 6.0}});
  p.exhausted = Exhausted::kStop;
  const auto input = open(p);
  for (int pass = 0; pass < 2; ++pass) {
    std::map<int32_t, int> rows_of_source;
    for (const Row& row : take(*input, 1000))
      if (row.counts) ++rows_of_source[row.source];
    REQUIRE(rows_of_source == std::map<int32_t, int>{{0, 1}, {1, 57}, {2, 34}});
    REQUIRE_FALSE(input->get_next());
    input->reset();
  }
}

TEST_CASE("a mixture of one source is that source, and mixtures nest") {
  Corpora corpora;
  const auto one = mixture({{"a", corpora.rows("a", 50, true)}}, {{"a", 3.0}});
  const std::vector<Row> rows = take(*open(one), 8);
  for (size_t i = 0; i < rows.size(); ++i)
    REQUIRE(rows[i] == Row{0, static_cast<int32_t>(i), true});
  const auto nested =
      mixture({{"b", corpora.rows("b", 50, true)}, {"inner", one}}, {{"b", 1.0}, {"inner", 1.0}});
  std::vector<int32_t> next(2);
  for (const Row& row : take(*open(nested), 8))
    REQUIRE(row.number == next[static_cast<size_t>(row.source)]++);
  REQUIRE(next == std::vector<int32_t>{20, 20});
  const auto straight = open(nested);
  take(*straight, 3);
  const auto resumed = open(nested);
  resumed->restore(straight->state());
  REQUIRE(take(*resumed, 5) == take(*straight, 5));
}

TEST_CASE("a nested mixture with exhausted=raise is an error too") {
  Corpora corpora;
  auto inner = mixture({{"a", corpora.rows("a", 3, false)}}, {{"a", 1.0}});
  inner.exhausted = Exhausted::kRaise;
  const auto p =
      mixture({{"b", corpora.rows("b", 50, true)}, {"inner", inner}}, {{"b", 1.0}, {"inner", 1.0}});
  REQUIRE_THROWS_WITH(take(*open(p), 2), Contains("source 'a' is exhausted: its 3 rows"));
}

TEST_CASE("a run is not resumed if an exhausted source has another number of rows") {
  Corpora corpora;
  auto p = mixture({{"a", corpora.rows("a", 8, false)}, {"b", corpora.rows("b", 90, false)}},
                   {{"a", 1.0}, {"b", 1.0}});
  p.exhausted = Exhausted::kStop;
  const auto input = open(p);
  take(*input, 6);
  auto other = p;
  other.sources["a"] = corpora.rows("more", 12, false);
  REQUIRE_THROWS_WITH(open(other)->restore(input->state()),
                      Contains("the data differs from the run's") && Contains("in sources.a"));
}

TEST_CASE("with other weights every source goes on where it was, in blocks that begin here") {
  Corpora corpora;
  for (const MixtureOrder order : {MixtureOrder::kBlocks, MixtureOrder::kGreedy}) {
    auto p = mixture({{"a", corpora.rows("a", 900, true)}, {"b", corpora.rows("b", 900, true)}},
                     {{"a", 1.0}, {"b", 1.0}});
    p.order = order;
    std::vector<int32_t> next(2);
    std::vector<Row> rows;
    InputState state;
    for (const auto& [a, batches] : {std::pair{1.0, 7}, {0.25, 9}, {0.25, 4}, {4.0, 5}}) {
      INFO(enum_name(order) << " with the weight " << a);
      p.weights["a"] = a;
      const auto input = open(p);
      if (state.position > 0) input->restore(state);
      rows = take(*input, batches);
      for (const Row& row : rows) REQUIRE(row.number == next[static_cast<size_t>(row.source)]++);
      state = input->state();
    }
    // 4 : 1 in 25 rows from the change on.
    REQUIRE(std::ranges::count(rows.begin(), rows.begin() + 20, 0, &Row::source) == 16);
  }
}

TEST_CASE("a mixture in the order of Megatron resumes at any row as it would go on") {
  Corpora corpora;
  auto p = mixture({{"a", corpora.rows("a", 50, true)}, {"b", corpora.rows("b", 31, true)}},
                   {{"a", 1.7}, {"b", 0.6}});
  p.order = MixtureOrder::kGreedy;
  p.global_batch_size = 3;
  const auto straight = open(p);
  for (int step = 0; step < 30; ++step) {
    const auto resumed = open(p);
    resumed->restore(straight->state());
    REQUIRE(take(*resumed, 1) == take(*straight, 1));
    REQUIRE(resumed->state().cursors == straight->state().cursors);
  }
  p.stages = {{.step = 4, .weights = p.weights}};
  REQUIRE_THROWS_WITH(open(p), Contains("order=greedy has no stages"));
  p.stages.clear();
  p.exhausted = Exhausted::kStop;
  REQUIRE_THROWS_WITH(open(p), Contains("exhausted is 'stop' with order=greedy"));
}

TEST_CASE("a change of what was read is detected") {
  Corpora corpora;
  auto p = mixture(
      {{"alpha", corpora.rows("alpha", 90, true)}, {"beta", corpora.rows("beta", 90, true)}},
      {{"alpha", 1.0}, {"beta", 1.0}});
  const auto input = open(p);
  take(*input, 6);
  const InputState state = input->state();
  auto later = p;
  later.stages = {{.step = 6, .weights = {{"alpha", 0.2}, {"beta", 0.8}}}};
  REQUIRE_NOTHROW(open(later)->restore(state));
  auto renamed = mixture({{"alphas", p.sources.at("alpha")}, {"beta", p.sources.at("beta")}},
                         {{"alphas", 1.0}, {"beta", 1.0}});
  REQUIRE_THROWS_WITH(open(renamed)->restore(state),
                      Contains("has read 15 rows of source 'alpha', which is no longer a source") &&
                          Contains("did you mean 'alphas'"));
  auto other = p;
  other.sources["beta"] = corpora.rows("other", 91, true);
  REQUIRE_THROWS_WITH(open(other)->restore(state),
                      Contains("differs from the run's") && Contains("in sources.beta"));
}

TEST_CASE("an invalid mixture is refused with a message") {
  Corpora corpora;
  const auto good =
      mixture({{"code", corpora.rows("code", 90, true)}, {"web", corpora.rows("web", 90, true)}},
              {{"code", 1.0}, {"web", 1.0}});
  const auto refused = [&](auto change, const std::string& words) {
    MixtureInput::HParams p = good;
    change(p);
    REQUIRE_THROWS_WITH(open(p), Contains(words));
  };
  using P = MixtureInput::HParams&;
  refused([](P p) { p.sources.clear(); }, "has no sources");
  refused([](P p) { p.weights.erase("web"); }, "weights has no weight for source 'web'");
  refused([](P p) { p.weights["wbe"] = 1.0; },
          "'wbe', which is not a source; sources are code, web; did");
  refused([](P p) { p.weights["web"] = -1.0; }, "weights.web is -1");
  refused([](P p) { p.weights["web"] = std::nan(""); }, "weights.web is nan");
  refused([](P p) { p.weights = {{"code", 0.0}, {"web", 0.0}}; }, "add up to 0");
  refused([](P p) { p.weights["web"] = 0.01; }, "less than one row in a block of 10");
  refused([](P p) { p.block_size = 0; }, "block_size is 0");
  refused([](P p) { p.block_size = 1 << 30; }, "block_size is 1073741824");
  refused([](P p) { p.stages = {{.step = 3, .weights = p.weights}}; },
          "stages[0] begins at step 3, within a block of 10 rows; blocks begin every 2 steps of 5 "
          "rows: use step 4 or 2");
  refused([](P p) { p.stages = {{.step = 0, .weights = p.weights}}; }, "step is 0, expected 1 to");
  refused([](P p) { p.stages = {{4, p.weights}, {4, p.weights}}; }, "not after the stage before");
  refused([](P p) { p.sources["web"] = TextInput::HParams{}; },
          "'web' is a TextInput, whose rows are not numbered");
  refused([](P p) { p.sources.at("web").as<FlatTokensInput::HParams>().seq_len = 8; },
          "source 'web' has seq_len=8, the mixture 4");
  refused([](P p) { p.sources.at("web").as<FlatTokensInput::HParams>().num_batches = 8; },
          "source 'web' ends after num_batches=8");
  refused([](P p) { p.sources.at("web").as<FlatTokensInput::HParams>().path = "/no/such.h5"; },
          "in sources.web");
  Corpora::write(corpora.path("other.h5"), 20, {"other", "other-1", "", 1000});
  Corpora::write(corpora.path("wide.h5"), 20, {"numbers", "numbers-1", "", 2000});
  const auto of_file = [&](const char* name) {
    return [&corpora, name](P p) {
      p.sources.at("web").as<FlatTokensInput::HParams>().path = corpora.path(name).string();
    };
  };
  refused(of_file("other.h5"),
          "'code' has the tokenizer fingerprint 'numbers-1', source 'web' has 'other-1'");
  refused(of_file("wide.h5"), "'code' has a vocabulary of 1000, source 'web' one of 2000");
}

TEST_CASE("unbounded synthetic sources can be mixed") {
  const auto p = mixture(
      {{"copy", SyntheticInput::HParams{.task = SyntheticTask::kCopy, .distance = 2}},
       {"reversal", SyntheticInput::HParams{.task = SyntheticTask::kReversal, .distance = 2}}},
      {{"copy", 1.0}, {"reversal", 4.0}});
  const auto input = open(p);
  int of_reversal = 0;
  for (const Row& row : take(*input, 20)) of_reversal += row.source;
  REQUIRE(of_reversal == 80);
}

}  // namespace
}  // namespace tessera
