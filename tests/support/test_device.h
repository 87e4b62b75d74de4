// SPDX-License-Identifier: Apache-2.0
// The devices that tests run on: the kind named by the environment variable TESSERA_TEST_DEVICE, by
// default CPU devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/executor/device_kinds.h"

namespace tessera {

std::string test_device_kind();

// `threads` threads for each device.
std::unique_ptr<Device> make_test_device(int threads);
std::vector<std::unique_ptr<Device>> make_test_devices(int64_t count, int threads);
std::unique_ptr<Communicator> make_test_communicator(CommunicatorOptions options);

std::vector<Device*> pointers(const std::vector<std::unique_ptr<Device>>& devices);

}  // namespace tessera
