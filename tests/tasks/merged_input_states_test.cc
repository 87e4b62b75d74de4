// SPDX-License-Identifier: Apache-2.0
// The input states of all processes are merged into one.
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tasks/train/loop_state.h"
#include "tests/support/catch.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using Catch::Contains;

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
    REQUIRE(outcome.state.position == 7);  // Of the processes that have input left.
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

}  // namespace
}  // namespace tessera
