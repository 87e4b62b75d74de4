// SPDX-License-Identifier: Apache-2.0
// A chain of stages that pass values on to each other in a ring, as programs of devices that differ
// between stages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/device_executor.h"

namespace tessera {

// Microbatch m enters stage 0, visits the stages one after another and returns to stage 0, whose
// output "y<m>" it is. A stage computes 2 h + sum(h), where the sum is over the devices of `data`.
struct TransferTrial {
  int64_t stages = 2;
  int64_t data = 1;
  int64_t microbatches = 3;
  Communication communication = Communication::kInline;

  Mesh mesh() const;
  // The program of the devices at this stage, for the whole mesh. It has the transfers in the order
  // of the ticks in which they are ready; those of one tick in the order of the sending stages.
  Graph graph(int64_t stage) const;
};

// The result of one device.
struct TransferResult {
  std::vector<std::vector<float>> outputs;  // This device's rows, by microbatch; stage 0 only.
  int64_t planned_bytes = 0;                // Bytes sent in a step, by its graph.
};

// Runs `steps` steps with different operands on one device. Returns the results of the last one.
TransferResult run_transfers(const TransferTrial& trial, int64_t steps, int64_t number,
                             Device& device, Communicator& communicator);
// Returns the expected `outputs`.
std::vector<std::vector<float>> expected_transfers(const TransferTrial& trial, int64_t steps,
                                                   int64_t number);

// Runs it on devices of any kind and REQUIREs the results, and the bytes that each device sent.
void check_transfers(const TransferTrial& trial,
                     const std::vector<std::unique_ptr<Device>>& devices,
                     const std::vector<std::unique_ptr<Communicator>>& communicators);

}  // namespace tessera
