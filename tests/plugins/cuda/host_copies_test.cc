// SPDX-License-Identifier: Apache-2.0
// Tests copies of a GPU's memory to and from the host, like those of a save and a restore.
#include "plugins/cuda/device/host_copies.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {
namespace {

constexpr auto kBuffer = static_cast<int64_t>(HostCopies::kBuffer);

std::byte byte_at(int64_t i) { return static_cast<std::byte>(i * 7 + i / 251); }

void fill(std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(static_cast<int64_t>(i));
}
bool is_filled(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != byte_at(static_cast<int64_t>(i))) return false;
  return true;
}

TEST_CASE("a GPU's memory is mapped through page-locked memory, whatever its size") {
  const TestDevices devices;
  Device& gpu = *devices.gpu;
  const int64_t most = 3 * kBuffer + 5;
  const DeviceAddress memory = gpu.allocate(most + 1);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kBuffer, kBuffer + 1, 2 * kBuffer, most}) {
    INFO(bytes);
    gpu.map(memory + 1, bytes, HostAccess::kWrite, fill);
    gpu.map(memory + 1, bytes, HostAccess::kUpdate, [](std::span<std::byte> all) {
      REQUIRE(is_filled(all));
      std::ranges::reverse(all);
    });
    gpu.map(memory + 1, bytes, HostAccess::kRead, [](std::span<std::byte> all) {
      std::ranges::reverse(all);
      REQUIRE(is_filled(all));
    });
  }
  REQUIRE(tessera_virtual_gpu_pageable_copies() == 0);
  gpu.release(memory, most + 1);
}

TEST_CASE("a GPU's memory can be mapped while another part of it is") {
  const TestDevices devices;
  Device& gpu = *devices.gpu;
  const DeviceAddress from = gpu.allocate(100), to = gpu.allocate(100);
  gpu.map(from, 100, HostAccess::kWrite, fill);
  gpu.map(from, 100, HostAccess::kRead, [&](std::span<const std::byte> source) {
    gpu.map(to, 100, HostAccess::kWrite, [&](std::span<std::byte> destination) {
      std::ranges::copy(source, destination.begin());
    });
  });
  gpu.map(to, 100, HostAccess::kRead,
          [](std::span<const std::byte> all) { REQUIRE(is_filled(all)); });
  gpu.release(from, 100), gpu.release(to, 100);
}

TEST_CASE("a save and a restore copy nothing to or from pageable memory") {
  const TestDevices devices;
  const TemporaryDirectory folder;
  Device& gpu = *devices.gpu;
  const int64_t elements = kBuffer / 2 + 3, bytes = 4 * elements;  // More than two tiles.
  const DeviceAddress memory = gpu.allocate(bytes);
  gpu.map(memory, bytes, HostAccess::kWrite, fill);
  const CheckpointStore store(folder.path());
  ProcessGroup alone;
  store.add({.step = 1},
            {{.path = "params/w",
              .dtype = DType::kU32,
              .shape = {elements},
              .bytes = DeviceBuffer{&gpu, memory, bytes}}},
            alone);
  gpu.map(memory, bytes, HostAccess::kWrite,
          [](std::span<std::byte> all) { std::ranges::fill(all, std::byte{0}); });
  const Checkpoint checkpoint = store.open(1);
  gpu.map(memory, bytes, HostAccess::kWrite, [&](std::span<std::byte> all) {
    checkpoint.read_block("params/w", Region::whole({elements}), all);
  });
  gpu.map(memory, bytes, HostAccess::kRead,
          [](std::span<const std::byte> all) { REQUIRE(is_filled(all)); });
  REQUIRE(tessera_virtual_gpu_pageable_copies() == 0);
  gpu.release(memory, bytes);
}

}  // namespace
}  // namespace tessera::cuda
