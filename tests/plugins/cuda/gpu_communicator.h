// SPDX-License-Identifier: Apache-2.0
// Collectives on virtual GPUs that are connected by peer copies or by the stand-in for NCCL
// (tests/plugins/cuda/fake_nccl.cc).
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

// Returns the environment for virtual GPUs with these collectives ("peer" or "nccl").
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

// Runs a collective on one device: prepares its kernel, and runs it for each operand on a separate
// stream. The host waits only at the end: the operand is overwritten, and the result read, as soon
// as the events of the step allow.
std::vector<Bytes> steps_of_device(const CommunicatorTrial& trial, int64_t number, Device& device,
                                   Communicator& communicator,
                                   const std::vector<Bytes>& operand_of_step);

// Operands and results, indexed [step][device].
using StepBytes = std::vector<std::vector<Bytes>>;
StepBytes run_steps(const CommunicatorTrial& trial, Gpus& gpus, const StepBytes& operands);

// Returns the errors of the GPUs if those that do not join only prepare the collective.
std::vector<std::string> errors_of(const CommunicatorTrial& trial, Gpus& gpus,
                                   const std::vector<bool>& joins);

// Runs some steps with different operands, and requires the bits of the communicator of CPU
// devices. NCCL adds in another order: its sums of fractions are equal within rounding, with the
// same bits on all devices.
void check_trial(const CommunicatorTrial& trial, Gpus& gpus);

}  // namespace tessera::cuda
