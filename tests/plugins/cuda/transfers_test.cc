// SPDX-License-Identifier: Apache-2.0
// Tests sends and receives between virtual GPUs that run different programs.
#include <cstdint>

#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/support/catch.h"
#include "tests/support/transfer_trial.h"

namespace tessera::cuda {
namespace {

TEST_CASE("values pass through stages of GPUs, with and without a communication stream") {
  const std::string collectives = GENERATE("peer", "nccl");
  for (const int64_t stages : {2, 4})
    for (const Communication how : {Communication::kInline, Communication::kOverlapped})
      for (uint64_t seed = 0; seed < 2; ++seed) {
        const Gpus gpus(collectives, stages, seed);
        check_transfers({stages, 1, 4, how}, gpus.devices, gpus.communicators);
      }
}

TEST_CASE("stages of several GPUs pass values on, in one process and in several") {
  for (const int processes : {1, 2}) {
    const Gpus gpus("nccl", 4, 1, {}, processes);
    check_transfers({2, 2, 3, Communication::kOverlapped}, gpus.devices, gpus.communicators);
  }
  const Gpus gpus("peer", 4);
  check_transfers({2, 2, 3, Communication::kOverlapped}, gpus.devices, gpus.communicators);
}

}  // namespace
}  // namespace tessera::cuda
