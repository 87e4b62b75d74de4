// SPDX-License-Identifier: Apache-2.0
// A CPU device describes itself; its arena is zeroed and aligned, and one that does not fit is
// refused.
#include "core/devices/cpu/device.h"

#include <cstdint>
#include <memory>

#include "core/graph/op.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("arena memory is zeroed, huge-page aligned and writable to its end") {
  ThreadPool team(2);
  const int64_t bytes = (int64_t{5} << 20) + 3;
  std::byte* const memory = allocate_pages(bytes, team);
  REQUIRE(memory != nullptr);
  REQUIRE(reinterpret_cast<uintptr_t>(memory) % (uintptr_t{2} << 20) == 0);
  int64_t nonzero = 0;
  for (int64_t i = 0; i < bytes; ++i) nonzero += memory[i] != std::byte{0};
  REQUIRE(nonzero == 0);
  memory[bytes - 1] = std::byte{1};
  release_pages(memory, bytes);
}

TEST_CASE("an arena that does not fit is refused") {
  ThreadPool team(2);
  REQUIRE(available_memory() > 0);
  REQUIRE(allocate_pages(available_memory() * 2, team) == nullptr);
  REQUIRE(allocate_pages(int64_t{1} << 55, team) == nullptr);
}

TEST_CASE("a device describes itself") {
  const std::unique_ptr<Device> device = make_cpu_device(2);
  REQUIRE(device->kind() == "cpu");
  REQUIRE_THAT(device->description(), Catch::StartsWith("cpu: 2 threads, "));
  REQUIRE(device->peak_flops(DType::kF32) > 1e8);
  REQUIRE_FALSE(device->has_kernel(OpDef{.name = "no_such_op"}));
}

}  // namespace
}  // namespace tessera
