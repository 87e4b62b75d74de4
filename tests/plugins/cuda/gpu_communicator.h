// SPDX-License-Identifier: Apache-2.0
// Collectives on virtual GPUs that are connected by peer copies or by NCCL, for which
// tests/plugins/cuda/fake_nccl.cc stands in.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/communicator.h"
#include "plugins/cuda/communicator/cuda_communicator.h"
#include "plugins/cuda/device/device.h"
#include "tests/support/communicator_trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {

std::string fake_nccl_file();

// For virtual GPUs whose collectives are "peer" or "nccl".
std::map<std::string, std::string> collectives_environment(const std::string& collectives);

// Connected devices on fresh virtual GPUs, of one process or of several simulated ones of one host.
struct Gpus {
  Gpus(const std::string& collectives, int64_t count, uint64_t seed = 1,
       const CommunicatorOptions& options = {}, int processes = 1);
  Communicator& communicator() { return *communicators[0]; }

  virtual_gpu::TestGpus gpus;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Communicator>> communicators;
};

// What one device does with a collective: prepares its kernel, and runs it for each operand on a
// stream of its own. The host waits only at the end: the operand is overwritten, and the result
// read, as soon as the events of the step allow.
std::vector<Bytes> steps_of_device(const CommunicatorTrial& trial, int64_t number, Device& device,
                                   Communicator& communicator,
                                   const std::vector<Bytes>& operand_of_step);

// operands[step][device], results alike.
using StepBytes = std::vector<std::vector<Bytes>>;
StepBytes run_steps(const CommunicatorTrial& trial, Gpus& gpus, const StepBytes& operands);

// The errors of the GPUs if those that do not join only prepare the collective.
std::vector<std::string> errors_of(const CommunicatorTrial& trial, Gpus& gpus,
                                   const std::vector<bool>& joins);

// Runs some steps, whose operands differ, and requires the bits that the communicator of CPU
// devices gives. NCCL's sums of fractions have another order: the same results within rounding, on
// all devices the same bits.
void check_trial(const CommunicatorTrial& trial, Gpus& gpus);

}  // namespace tessera::cuda
