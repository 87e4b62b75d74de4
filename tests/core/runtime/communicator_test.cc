// SPDX-License-Identifier: Apache-2.0
// Collectives over devices, which are threads of simulated processes, compared with their
// definitions.
#include "core/runtime/comm/communicator.h"

#include <algorithm>

#include "core/base/random.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/device.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"

namespace tessera {
namespace {

void check_values(const CommunicatorTrial& trial, int processes) {
  INFO(trial.text() << ", " << processes << " processes");
  const auto communicators = make_communicators(trial.mesh.num_devices(), processes);
  const auto operands = whole_operands(trial);
  const auto results = run_trial(trial, communicators, encoded_operands(trial.in.dtype, operands));
  REQUIRE(results == encoded_operands(trial.in.dtype, expected_results(trial, operands)));
}

TEST_CASE("collectives match their definitions for every distribution of devices over processes") {
  const Mesh even({{"a", 2}, {"b", 2}, {"c", 2}}), uneven({{"a", 2}, {"b", 3}});
  const std::vector<std::vector<std::string>> over_even = {
      {"a"}, {"c"}, {"c", "a"}, {"a", "b", "c"}, {"b", "c", "a"}};
  for (const int processes : {1, 2, 8})
    for (const auto& axes : over_even)
      for (const CommunicatorTrial& trial : collective_trials(even, axes, DType::kF32))
        check_values(trial, processes);
  for (const int processes : {2, 3})  // Groups with more devices in one process than in another.
    for (const auto& axes : std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"b", "a"}})
      for (const CommunicatorTrial& trial : collective_trials(uneven, axes, DType::kF32))
        check_values(trial, processes);
}

TEST_CASE("collectives support every dtype that can be sent between devices") {
  const Mesh mesh({{"a", 4}});
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kI32})
    for (const int processes : {1, 2})
      for (const CommunicatorTrial& trial : collective_trials(mesh, {"a"}, dtype))
        check_values(trial, processes);
}

TEST_CASE("arrays larger than scratch are sent in pieces") {
  const Mesh mesh({{"a", 4}});
  const Type big = parse_type("f32[\"x=2 y=1024 z=515\"]");
  check_values(
      {mesh, {"a"}, "all_gather", parse_type("f32[\"x=2 y=256 z=515\"]"), {{key::kAxis, "y"}}}, 4);
  for (const int processes : {2, 4})
    check_values({mesh, {"a"}, "reduce_scatter", big, {{key::kAxis, "y"}}}, processes);
  check_values({mesh, {"a"}, "all_reduce", big}, 4);
  check_values({mesh,
                {"a"},
                "all_to_all",
                parse_type("f32[\"x=4 y=512 z=515\"]"),
                {{key::kSplitAxis, "x"}, {key::kConcatAxis, "z"}}},
               2);
}

TEST_CASE("sums are bitwise reproducible and, in f32, independent of the number of processes") {
  const Mesh mesh({{"a", 2}, {"b", 4}});
  for (const auto& axes : std::vector<std::vector<std::string>>{{"b"}, {"a", "b"}, {"b", "a"}}) {
    const CommunicatorTrial trial{mesh, axes, "all_reduce", parse_type("f32[\"x=3001\"]")};
    const auto operands = encoded_operands(DType::kF32, random_operands(trial));
    const auto once = run_trial(trial, make_communicators(8, 1), operands);
    for (const int processes : {1, 2, 4, 8})
      REQUIRE(run_trial(trial, make_communicators(8, processes), operands) == once);
  }
}

TEST_CASE("bf16 is summed in f32 and rounded once") {
  const CommunicatorTrial trial{Mesh({{"a", 8}}), {"a"}, "all_reduce", parse_type("bf16[\"x=1\"]")};
  // Added one by one in bf16, the terms would be lost by rounding.
  std::vector<std::vector<double>> operands(8, {0.5});
  operands[0] = {256.0};
  const auto results =
      run_trial(trial, make_communicators(8, 1), encoded_operands(DType::kBF16, operands));
  REQUIRE(decode_values(trial.in, results[0].data())[0] == 260.0);  // 259.5, rounded to even.
}

TEST_CASE("each device sends as many bytes as collective_bytes predicts") {
  const Mesh mesh({{"a", 2}, {"b", 4}});
  for (const int processes : {1, 2, 4, 8}) {
    for (const auto& axes : std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"b", "a"}}) {
      for (CommunicatorTrial trial : collective_trials(mesh, axes, DType::kF32)) {
        if (trial.op == "all_reduce") trial.in = parse_type("f32[\"x=64\"]");
        INFO(trial.text() << ", " << processes << " processes");
        const auto communicators = make_communicators(8, processes);
        run_trial(trial, communicators, encoded_operands(DType::kF32, whole_operands(trial)));
        for (const auto& communicator : communicators) {
          for (int64_t i = 0; i < communicator->local_devices(); ++i) {
            const int64_t device = communicator->first_device() + i;
            const Graph graph = trial_graph(trial, device);
            REQUIRE(communicator->bytes_sent(device) ==
                    collective_bytes(graph, graph.nodes().front()));
          }
        }
      }
    }
  }
}

TEST_CASE("parts of unequal size do not change the total number of bytes sent") {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  for (const int processes : {1, 2, 3, 6}) {
    for (const CommunicatorTrial& trial : collective_trials(mesh, {"b", "a"}, DType::kF32)) {
      if (trial.op == "permute") continue;
      INFO(trial.text() << ", " << processes << " processes");
      const auto communicators = make_communicators(6, processes);
      run_trial(trial, communicators, encoded_operands(DType::kF32, whole_operands(trial)));
      int64_t sent = 0;
      for (const auto& communicator : communicators)
        for (int64_t i = 0; i < communicator->local_devices(); ++i)
          sent += communicator->bytes_sent(communicator->first_device() + i);
      const int64_t longer = std::max(trial.in.bytes(), trial.out().bytes());
      REQUIRE(sent == 5 * longer * (trial.op == "all_reduce" ? 2 : 1));
    }
  }
}

}  // namespace
}  // namespace tessera
