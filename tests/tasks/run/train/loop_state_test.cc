// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/loop_state.h"

#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE(
    "the loop state in a checkpoint reads back, and keys of different inputs do not collide") {
  LoopState state;
  state.input = {7, {{"data", "corpus"}, {"eval", "a key of the input's own"}}};
  state.evals["books"] = {3, {{"data", "books"}, {"position", "of the input's own"}}};
  state.evals["web"] = {0, {{"lanes/0", "3 17"}}};
  state.stop_reason = "good enough";
  state.early_stopper = {1.25, 4};
  state.mesh = "data=2";
  CheckpointInfo info;
  put_loop_state(state, &info);
  const LoopState read = loop_state_of(info);
  REQUIRE(read.input.position == 7);
  REQUIRE(read.input.cursors == state.input.cursors);
  REQUIRE(read.evals.size() == 2);
  for (const auto& [dataset, input] : state.evals) {
    REQUIRE(read.evals.at(dataset).position == input.position);
    REQUIRE(read.evals.at(dataset).cursors == input.cursors);
  }
  REQUIRE(read.stop_reason == "good enough");
  REQUIRE(read.early_stopper.evals_since_best == 4);
  REQUIRE(read.mesh == "data=2");
}

TEST_CASE("a position that is not a number is rejected") {
  CheckpointInfo info;
  info.input_extra = {{"eval/books/position", "3x"}};
  REQUIRE_THROWS_WITH(loop_state_of(info), Contains("'eval/books/position' is '3x'"));
}

// The merged state of a process, or its error.
struct Outcome {
  InputState state;
  std::string error;
};

std::vector<Outcome> unite(const std::vector<InputState>& states) {
  const auto transports = make_loopback(static_cast<int>(states.size()));
  std::vector<Outcome> outcomes(states.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < states.size(); ++rank)
    threads.emplace_back([&, rank] {
      ProcessGroup processes(transports[rank], std::chrono::seconds(20));
      try {
        outcomes[rank].state = merged_input_states(states[rank], processes);
      } catch (const Error& error) {
        outcomes[rank].error = error.what();
      }
    });
  threads.clear();
  return outcomes;
}

TEST_CASE("a merged state has the entries of every process") {
  const auto outcomes = unite({{7, {{"data", "x"}, {"lane/0", "a:b\n3:"}}},
                               {7, {{"data", "x"}, {"lane/1", std::string("\0é", 3)}}},
                               {5, {{"data", "x"}, {"lane/2", ""}, {"", "odd"}}}});
  const std::map<std::string, std::string> all = {{"", "odd"},
                                                  {"data", "x"},
                                                  {"lane/0", "a:b\n3:"},
                                                  {"lane/1", std::string("\0é", 3)},
                                                  {"lane/2", ""}};
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.error.empty());
    REQUIRE(outcome.state.position == 7);  // The position of the processes that have input left.
    REQUIRE(outcome.state.cursors == all);
  }
}

TEST_CASE("processes that read different data are not merged") {
  for (const Outcome& outcome : unite({{1, {{"data", "x"}}}, {1, {{"data", "y"}}}}))
    REQUIRE_THAT(outcome.error, Contains("the input's 'data' is 'y' in process 1"));
}

TEST_CASE("corrupt records are counted over all rows") {
  InputState state{3, {{"lane/0", "12"}}};
  REQUIRE(corrupt_records(state).count == 0);
  state.cursors["broken/4"] = corrupt_records_entry({2, "b.jsonl:7: no JSON"});
  state.cursors["broken/11"] = corrupt_records_entry({5, "a.jsonl:1: no field 'text'"});
  state.cursors["broken/12"] = "many";  // Not written by corrupt_records_entry().
  REQUIRE(corrupt_records(state).count == 7);
  REQUIRE(corrupt_records(state).first == "a.jsonl:1: no field 'text'");
}

const std::string kMetric = "eval/validation/log_pplx";

TEST_CASE("without a metric a run is never stopped early") {
  EarlyStopper stopper({});
  REQUIRE(stopper.observe({{kMetric, 1.0}}).empty());
}

TEST_CASE("a run stops once its metric has not improved for patience_evals evaluations") {
  EarlyStopper stopper({.metric = kMetric, .patience_evals = 2, .min_improvement = 0.1});
  REQUIRE(stopper.observe({{kMetric, 3.0}}).empty());
  REQUIRE(stopper.observe({{kMetric, 2.0}}).empty());
  REQUIRE(stopper.observe({{kMetric, 1.95}}).empty());  // Improved by less than min_improvement.
  REQUIRE_THAT(stopper.observe({{kMetric, 1.92}}),
               Contains("has not improved on 2.0000 for 2 evaluations"));
}

TEST_CASE("an improvement resets the count") {
  EarlyStopper stopper({.metric = kMetric, .patience_evals = 2});
  for (const double value : {3.0, 3.1, 2.9, 3.0})
    REQUIRE(stopper.observe({{kMetric, value}}).empty());
  REQUIRE_FALSE(stopper.observe({{kMetric, 2.95}}).empty());
}

TEST_CASE("a run stops when the metric reaches its target") {
  EarlyStopper stopper({.metric = kMetric, .target = 1.5, .stop_at_target = true});
  REQUIRE(stopper.observe({{kMetric, 1.6}}).empty());
  REQUIRE_THAT(stopper.observe({{kMetric, 1.5}}), Contains("reached the target 1.5"));
}

TEST_CASE("a restored stopper makes the same decision as an uninterrupted one") {
  const EarlyStopping p{.metric = kMetric, .patience_evals = 2};
  EarlyStopper first(p);
  first.observe({{kMetric, 1.0}});
  first.observe({{kMetric, 2.0}});
  EarlyStopper second(p);
  second.restore(first.state());
  REQUIRE_FALSE(second.observe({{kMetric, 2.0}}).empty());
}

TEST_CASE("a NaN metric never counts as an improvement") {
  EarlyStopper stopper({.metric = kMetric, .patience_evals = 1});
  REQUIRE_FALSE(stopper.observe({{kMetric, std::nan("")}}).empty());
}

}  // namespace
}  // namespace tessera
