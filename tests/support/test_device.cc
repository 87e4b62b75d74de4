// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_device.h"

#include <cstdlib>
#include <utility>

namespace tessera {

std::string test_device_kind() {
  const char* kind = std::getenv("TESSERA_TEST_DEVICE");
  return kind != nullptr ? kind : "cpu";
}

std::unique_ptr<Device> make_test_device(int threads) {
  return std::move(make_test_devices(1, threads)[0]);
}

std::vector<std::unique_ptr<Device>> make_test_devices(int64_t count, int threads) {
  return find_device_kind(test_device_kind())
      .make_devices(count, static_cast<int>(count) * threads, 0);
}

std::unique_ptr<Communicator> make_test_communicator(CommunicatorOptions options) {
  return find_device_kind(test_device_kind()).make_communicator(std::move(options));
}

std::vector<Device*> pointers(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Device*> all;
  for (const auto& device : devices) all.push_back(device.get());
  return all;
}

}  // namespace tessera
