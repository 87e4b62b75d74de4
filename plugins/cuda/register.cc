// SPDX-License-Identifier: Apache-2.0
// Registers the device kind "cuda" when the plugin is loaded.
#include "core/runtime/executor/device_kinds.h"
#include "plugins/cuda/communicator/cuda_communicator.h"
#include "plugins/cuda/device/device.h"

namespace tessera::cuda {
namespace {

const bool kRegistered = [] {
  register_device_kind("cuda", {.make_devices = make_cuda_devices,
                                .make_communicator = make_cuda_communicator,
                                .collective_needs = cuda_collective_needs,
                                .overlaps = true});
  return true;
}();

}  // namespace
}  // namespace tessera::cuda
