// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transfer_trial.h"

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/cost.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/schedule/schedule.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"

namespace tessera {
namespace {

constexpr int64_t kRowsOfDevice = 5;

// Traces one stage.
class StageProgram {
 public:
  StageProgram(const TransferTrial& trial, int64_t stage, Graph& graph)
      : trial_(trial),
        stage_(stage),
        graph_(graph),
        type_(make_type(DType::kF32, {{"row", trial.data * kRowsOfDevice, {"data"}}})),
        values_(static_cast<size_t>(trial.microbatches)) {}

  void trace() {
    for (int64_t m = 0; stage_ == 0 && m < trial_.microbatches; ++m)
      value(m) = input(fmt::format("x{}", m), InputKind::kBatch, type_);
    for (int64_t tick = 0; tick < trial_.microbatches + trial_.stages - 1; ++tick) {
      if (const int64_t m = tick - stage_; is_microbatch(m)) compute(m);
      for (int64_t from = 0; from < trial_.stages; ++from)
        if (is_microbatch(tick - from)) transfer(tick - from, from);
    }
    for (int64_t m = 0; stage_ == 0 && m < trial_.microbatches; ++m)
      output(fmt::format("y{}", m), value(m));
  }

 private:
  Tensor& value(int64_t m) { return values_[static_cast<size_t>(m)]; }
  bool is_microbatch(int64_t m) const { return m >= 0 && m < trial_.microbatches; }

  void compute(int64_t m) {
    const PathScope path(fmt::format("stage{}", stage_));
    const Tensor h = value(m);
    value(m) = h * 2.0 + reduced(reduce_sum(h));
  }

  void transfer(int64_t m, int64_t from) {
    const int64_t to = (from + 1) % trial_.stages;
    const std::string slot = fmt::format("h{}", m);
    if (from == stage_) graph_.add_node(send_node(value(m).id(), "stage", to, slot), {});
    if (to != stage_) return;
    const NodeId id = graph_.add_node(receive_node(type_, "stage", from, slot), {type_});
    value(m) = Tensor(&graph_, graph_.node(id).outputs[0]);
  }

  const TransferTrial& trial_;
  int64_t stage_;
  Graph& graph_;
  Type type_;
  std::vector<Tensor> values_;
};

// Small integers.
std::vector<float> operand(const TransferTrial& trial, int64_t step, int64_t m) {
  std::vector<float> x(static_cast<size_t>(trial.data * kRowsOfDevice));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((static_cast<int64_t>(i) * 3 + m * 5 + step * 7) % 11);
  return x;
}

std::vector<float> rows_of_device(const TransferTrial& trial, const std::vector<float>& all,
                                  int64_t number) {
  const auto begin = all.begin() + number % trial.data * kRowsOfDevice;
  return {begin, begin + kRowsOfDevice};
}

}  // namespace

Mesh TransferTrial::mesh() const { return Mesh({{"stage", stages}, {"data", data}}); }

Graph TransferTrial::graph(int64_t stage) const {
  Graph graph;
  const AxisRules rules;
  const Mesh all = mesh();
  const TraceScope trace(graph, all, rules);
  StageProgram(*this, stage, graph).trace();
  return graph;
}

TransferResult run_transfers(const TransferTrial& trial, int64_t steps, int64_t number,
                             Device& device, Communicator& communicator) {
  Graph graph = schedule(fuse(lower(trial.graph(number / trial.data), trial.mesh(), number)));
  verify(graph, Mesh(), "schedule");
  DeviceExecutor executor(device, number, &communicator);
  const StepProgram plan = plan_memory(std::move(graph), executor.facts(), {}, trial.communication);
  CHECK(executor.allocate(plan.arena_bytes));
  executor.add_program(plan, *plan.graph);
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t m = 0; m < plan.inputs.size(); ++m) {
      const auto x = rows_of_device(trial, operand(trial, step, static_cast<int64_t>(m)), number);
      executor.copy_from_host(plan.inputs[m].offset, std::as_bytes(std::span(x)));
    }
    executor.start(0, DeviceExecutor::Timing::kUntimed, nullptr);
    executor.finish(nullptr);
  }
  TransferResult result{.outputs = {}, .planned_bytes = bytes_per_step(collectives(*plan.graph))};
  for (const Placement& each : plan.outputs) {
    std::vector<float> y(kRowsOfDevice);
    executor.copy_to_host(std::as_writable_bytes(std::span(y)), each.offset);
    result.outputs.push_back(std::move(y));
  }
  return result;
}

std::vector<std::vector<float>> expected_transfers(const TransferTrial& trial, int64_t steps,
                                                   int64_t number) {
  std::vector<std::vector<float>> results;
  if (number >= trial.data) return results;  // Not of stage 0.
  for (int64_t m = 0; m < trial.microbatches; ++m) {
    std::vector<float> h = operand(trial, steps - 1, m);
    for (int64_t stage = 0; stage < trial.stages; ++stage) {
      const float sum = std::accumulate(h.begin(), h.end(), 0.0f);
      for (float& each : h) each = each * 2.0f + sum;
    }
    results.push_back(rows_of_device(trial, h, number));
  }
  return results;
}

void check_transfers(const TransferTrial& trial,
                     const std::vector<std::unique_ptr<Device>>& devices,
                     const std::vector<std::unique_ptr<Communicator>>& communicators) {
  constexpr int64_t kSteps = 3;
  INFO(trial.stages << " stages, " << trial.data << " data, " << communicators.size()
                    << " processes, overlapped: "
                    << (trial.communication == Communication::kOverlapped));
  std::vector<TransferResult> results(devices.size());
  const auto errors =
      on_all_devices(communicators, [&](int64_t number, Communicator& communicator) {
        const auto place = static_cast<size_t>(number);
        try {
          results[place] = run_transfers(trial, kSteps, number, *devices[place], communicator);
        } catch (const std::exception& error) {
          communicator.stop(error.what());
          throw;
        }
      });
  for (const std::string& error : errors) REQUIRE(error == "");
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    REQUIRE(results[i].outputs == expected_transfers(trial, kSteps, number));
    const auto& own =
        communicators[static_cast<size_t>(number / communicators[0]->local_devices())];
    // An all-reduce of one number is not divided equally.
    if (trial.data == 1) REQUIRE(own->bytes_sent(number) == kSteps * results[i].planned_bytes);
  }
}

}  // namespace tessera
